// See options.hpp. The forms of values are in option_types.cpp.
//
// Every process reads all options at its start. As long as all is well that allocates nothing, and calls nothing that
// would map a part of the C library which small programs leave alone. The words that are compared lie inside the
// tables: as literals the linker would merge each into another one of the whole library that ends alike.
#include "shim/process/options.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "stats/format.hpp"

namespace cistern {
namespace {

constexpr std::string_view kPrefix = "CISTERN_";
constexpr std::size_t kShownMax = 80;

constexpr OptionRow kRows[] = {
#define OPTION(type, name, variable, default_text, accepts, help) {#variable, default_text, accepts},
#include "shim/options.def"
};

using Complain = void (*)(std::string_view line);

// --- The gate: CISTERN_FAIL_ON and what it depends on
constexpr char kFailOn[] = "CISTERN_FAIL_ON";
constexpr char kGateNames[][24] = {"CISTERN_FAIL_ON",       "CISTERN_FAIL_CODE",  "CISTERN_UNDECIDED_CODE",
                                   "CISTERN_FAIL_CHILDREN", "CISTERN_LEAK_CHECK", "CISTERN_LEAK_THREADS",
                                   "CISTERN_SUPPRESSIONS",  "CISTERN_SITES",      "CISTERN_HOST"};

// A wrong value of `variable`, or a name that is nearly that, leaves open what was to fail. Options that only matter
// beside a gate do not shut one that was not asked for.
bool shuts_gate(const Options& options, std::string_view variable) {
  if (variable == kFailOn) return true;
  return options.has_gate() &&
         std::any_of(std::begin(kGateNames), std::end(kGateNames), [&](const char* name) { return variable == name; });
}

constexpr char kDeviceLimit[] = "CISTERN_DEVICE_LIMIT";
// A wrong value of it, or a name that is nearly its own: some limit was meant, and none is in force yet.
bool leaves_limit_unclear(const Options& options, std::string_view variable) {
  return variable == kDeviceLimit && !options.device_limit;
}

// Where that shuts the gate or leaves a limit unclear, the line says what comes of that instead of what is done now.
[[gnu::noinline, gnu::cold]] void complain_about(Options& options, std::string_view variable, String line,
                                                 std::string_view what_now, Complain complain) {
  if (shuts_gate(options, variable)) {
    if (options.gate_fault.empty()) options.gate_fault = line;
    what_now = "; processes that used GPU memory will fail";
  } else if (leaves_limit_unclear(options, variable)) {
    options.device_limit.is_unclear = true;
    what_now = "; the limit is half of each device's memory";
  }
  complain(line.append(what_now));
}

String wrong_value(const OptionRow& row, const char* set, const String& wanted) {
  return String(row.variable) + ": '" + printable(set, kShownMax) + "' is not " + wanted;
}

// The entries that may be options: mostly few or none, and getenv would look through all others once for each row.
class Entries {
 public:
  explicit Entries(char** environment) {
    for (char** entry = environment; entry && *entry; ++entry)
      if (std::string_view(*entry).starts_with(kPrefix)) entries_.push_back(*entry);
  }
  bool have(std::string_view name) const {
    return std::any_of(entries_.begin(), entries_.end(), [name](std::string_view entry) {
      return entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name);
    });
  }

 private:
  Vector<const char*> entries_;
};

// An empty variable counts as unset, but for a gate and a limit: what was to be put in its place is missing.
template <class Type>
constexpr bool kEmptyIsWrong = std::is_same_v<Type, option_types::list> || std::is_same_v<Type, option_types::limit>;

// The value set by the user, else the default.
template <class Type>
void read_option(typename Type::Value& value, const OptionRow& row, const Entries& entries, Getenv getenv,
                 Options& options, Complain complain) {
  const char* set = entries.have(row.variable) ? getenv(row.variable) : nullptr;
  const bool is_set = set && (*set || kEmptyIsWrong<Type>);
  if (is_set) {
    if (auto parsed = Type::parse(set, row)) {
      value = std::move(*parsed);
      return;
    }
  }
  if (auto fallback = Type::parse(row.default_text, row)) value = std::move(*fallback);
  if (is_set)
    complain_about(options, row.variable, wrong_value(row, set, Type::wanted(row)),
                   "; using " + String(row.default_text), complain);
}

template <class Type>
bool change_option(typename Type::Value& value, const OptionRow& row, const char* text, Complain complain) {
  auto parsed = Type::parse(text, row);
  if (parsed) value = std::move(*parsed);
  if (!parsed) complain(wrong_value(row, text, Type::wanted(row)) + "; the option is unchanged");
  return parsed.has_value();
}

// Upper and lower case are the same.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  Vector<std::size_t> costs(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) costs[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = costs[0];
    costs[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
      diagonal = costs[j];
      costs[j] = std::min({replaced, costs[j] + 1, costs[j - 1] + 1});
    }
  }
  return costs[b.size()];
}

bool is_known(std::string_view name) {
  return std::any_of(std::begin(kRows), std::end(kRows), [&](const OptionRow& row) { return name == row.variable; });
}

// The option that the user may have meant: one whose own part (after CISTERN_, or its last words) is close.
std::string_view closest(std::string_view name) {
  constexpr std::size_t kFar = 4, kTellingMin = 3;  // "ON" alone says nothing
  const std::string_view own = name.substr(kPrefix.size());
  std::string_view best;
  std::size_t best_distance = kFar;
  for (const OptionRow& row : kRows) {
    std::string_view candidate = row.variable + kPrefix.size();
    while (true) {
      const std::size_t distance = edit_distance(own, candidate);
      const bool is_telling = candidate.size() >= kTellingMin && distance < candidate.size();
      if (distance < best_distance && distance * 3 <= own.size() && is_telling) {
        best = row.variable;
        best_distance = distance;
      }
      const std::size_t word_end = candidate.find('_');
      if (word_end == candidate.npos) break;
      candidate.remove_prefix(word_end + 1);
    }
  }
  return best;
}

constexpr std::size_t kSlips = 2;

// CISTERN_FAIL, CISTERN_FAIL_IF: whatever it is called, it is meant to make a process fail.
bool speaks_of_failing(std::string_view own) {
  constexpr char kFail[] = "FAIL";
  constexpr std::size_t kLength = sizeof kFail - 1;
  return same_word(own.substr(0, kLength), kFail) && (own.size() == kLength || own[kLength] == '_');
}

// The edge of the name is wrong: CISTRN_FAIL_ON.
bool is_nearly_fail_on(std::string_view name) {
  constexpr std::string_view kEdge = kPrefix.substr(0, kPrefix.size() - 1);
  const std::string_view what = kFailOn + kPrefix.size();
  if (name.size() <= what.size() || name.size() > sizeof kFailOn + kSlips) return false;
  std::string_view edge = name.substr(0, name.size() - what.size());
  const std::size_t slips = edit_distance(name.substr(edge.size()), what);
  if (edge.back() == '_' || edge.back() == '.' || edge.back() == '-') edge.remove_suffix(1);
  return slips + edit_distance(edge, kEdge) <= kSlips;
}

std::string_view meant_by(std::string_view name) {
  if (!name.starts_with(kPrefix)) return is_nearly_fail_on(name) ? kFailOn : std::string_view{};
  const std::string_view meant = closest(name.substr(0, kShownMax));
  return meant.empty() && speaks_of_failing(name.substr(kPrefix.size())) ? kFailOn : meant;
}

// Whether the name can hardly be anything else than the option that it is like: others may have names that begin as
// ours do.
bool stands_for(std::string_view name, std::string_view meant) {
  constexpr std::size_t kTellingMin = 5;
  if (meant.empty() || !name.starts_with(kPrefix)) return !meant.empty();
  const std::string_view own = name.substr(kPrefix.size(), kShownMax), option = meant.substr(kPrefix.size());
  return (meant == kFailOn && speaks_of_failing(own)) ||
         (option.size() >= kTellingMin && edit_distance(own, option) <= kSlips);
}

String no_such_option(std::string_view name, std::string_view meant) {
  String line = printable(name, kShownMax) + ": no such option";
  return meant.empty() ? line : line + " (did you mean " + String(meant) + "?)";
}

// Names that getenv answers only: a secure environment answers none.
void complain_about_unknown(char** environment, Getenv getenv, Options& options, Complain complain) {
  for (char** entry = environment; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const bool is_like_ours = text.starts_with(kPrefix);
    if (!is_like_ours && (text.empty() || lower(text.front()) != 'c')) continue;
    const std::string_view name = text.substr(0, text.find('='));
    if (is_known(name)) continue;
    const std::string_view meant = meant_by(name);
    if ((meant.empty() && !is_like_ours) || !getenv(String(name).c_str())) continue;
    const std::string_view variable = stands_for(name, meant) ? meant : std::string_view{};
    complain_about(options, variable, no_such_option(name, meant), {}, complain);
  }
}

}  // namespace

Options read_options(Getenv getenv, char** environment, Complain complain) {
  Options options;
  const Entries entries(environment);
  const OptionRow* row = kRows;
#define OPTION(type, name, variable, default_text, accepts, help) \
  read_option<option_types::type>(options.name, *row++, entries, getenv, options, complain);
#include "shim/options.def"
  const auto is_set = [&](const char* name) {
    const char* const value = entries.have(name) ? getenv(name) : nullptr;
    return value && *value;
  };
  options.report_requested = is_set("CISTERN_REPORT");
  options.leak_check_is_set = is_set("CISTERN_LEAK_CHECK");
  complain_about_unknown(environment, getenv, options, complain);
  return options;
}

std::optional<Options> with_option(const Options& before, std::string_view name, const char* value, Complain complain) {
  if (!is_known(name)) {
    complain(no_such_option(name, meant_by(name)));
    return {};
  }
  Options changed = before;
  bool set = true;
  const OptionRow* row = kRows;
#define OPTION(type, member, full_name, fallback, accepts, text)                                             \
  if (name == row->variable) set = change_option<option_types::type>(changed.member, *row, value, complain); \
  ++row;
#include "shim/options.def"
  changed.report_requested |= name == "CISTERN_REPORT";
  changed.leak_check_is_set |= name == "CISTERN_LEAK_CHECK";
  return set ? std::optional(std::move(changed)) : std::nullopt;
}

}  // namespace cistern
