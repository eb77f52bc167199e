// See options.hpp. One parser per type of options.def.
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

struct Row {
  char variable[32];
  char default_text[16];
  const char* help;
};

constexpr Row kRows[] = {
#define OPTION(type, name, variable, default_text, help) {#variable, default_text, help},
#include "shim/options.def"
};

struct Unit {
  char suffix[4];
  std::uint64_t factor;
};

struct Truth {
  char word[6];
  bool value;
};
constexpr Truth kTruths[] = {{"on", true},   {"1", true},  {"true", true},   {"yes", true},
                             {"off", false}, {"0", false}, {"false", false}, {"no", false}};

constexpr std::uint64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024, kTiB = kGiB * 1024;
constexpr Unit kByteUnits[] = {{"", 1},       {"B", 1},    {"K", kKiB},   {"KiB", kKiB}, {"M", kMiB},
                               {"MiB", kMiB}, {"G", kGiB}, {"GiB", kGiB}, {"T", kTiB},   {"TiB", kTiB}};
constexpr std::uint64_t kMillisecond = 1'000'000, kSecond = 1000 * kMillisecond;
constexpr Unit kTimeUnits[] = {{"", kSecond}, {"ms", kMillisecond}, {"s", kSecond}, {"min", 60 * kSecond}};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Upper and lower case are the same, whatever the locale.
bool same_word(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (lower(a[i]) != lower(b[i])) return false;
  return true;
}

// Digits, then one of the units; nothing on overflow.
template <std::size_t count>
std::optional<std::uint64_t> parse_amount(std::string_view text, const Unit (&units)[count]) {
  std::size_t digits = 0;
  std::uint64_t number = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    if (__builtin_mul_overflow(number, std::uint64_t{10}, &number)) return {};
    if (__builtin_add_overflow(number, static_cast<std::uint64_t>(text[digits] - '0'), &number)) return {};
  }
  if (digits == 0) return {};
  for (const Unit& unit : units) {
    if (!same_word(text.substr(digits), unit.suffix)) continue;
    if (__builtin_mul_overflow(number, unit.factor, &number)) return {};
    return number;
  }
  return {};
}

// The allowed words of a choice stand in backticks in its help: the next one, which is taken off, or nothing.
std::string_view next_choice(const char*& help) {
  const auto skip_to_backtick = [&] {
    while (*help && *help != '`') ++help;
    return *help != '\0';
  };
  if (!skip_to_backtick()) return {};
  const char* const first = ++help;
  if (!skip_to_backtick()) return {};
  return {first, static_cast<std::size_t>(help++ - first)};
}

String listed_choices(const char* help) {
  String list;
  for (std::string_view word = next_choice(help), next; !word.empty(); word = next) {
    next = next_choice(help);
    if (!list.empty()) list += next.empty() ? " or " : ", ";
    list += word;
  }
  return list;
}

// A value as shown in a line: bounded, without control characters.
String shown(std::string_view value) {
  String text(value.substr(0, kShownMax));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  if (value.size() > kShownMax) text += "...";
  return text;
}

struct on_off_parser {
  static std::optional<bool> parse(std::string_view text, const Row&) { return parse_on_off(text); }
  static String wanted(const Row&) { return "on or off"; }
};
struct bytes_parser {
  static std::optional<std::uint64_t> parse(std::string_view text, const Row&) {
    return parse_amount(text, kByteUnits);
  }
  static String wanted(const Row&) { return "a size such as 512MiB"; }
};
struct seconds_parser {
  static std::optional<std::uint64_t> parse(std::string_view text, const Row&) {
    return parse_amount(text, kTimeUnits);
  }
  static String wanted(const Row&) { return "a time such as 300s"; }
};
struct text_parser {
  static std::optional<String> parse(std::string_view text, const Row&) { return String(text); }
  static String wanted(const Row&) { return "a text"; }
};
struct failing_parser {
  static std::optional<FailOn> parse(std::string_view text, const Row&) {
    constexpr char kOff[] = "off";
    FailOn on;
    if (same_word(text, kOff)) return on;
    while (true) {
      const std::size_t comma = text.find(',');
      if (!add(on, text.substr(0, comma))) return {};
      if (comma == text.npos) return on;
      text.remove_prefix(comma + 1);
    }
  }
  // "lost", "lost:1MiB"; each once.
  static bool add(FailOn& on, std::string_view text) {
    constexpr struct {
      char word[9];
      FailOn::What what;
    } kWords[] = {
        {"any", FailOn::any}, {"lost", FailOn::lost}, {"possible", FailOn::possible}, {"growing", FailOn::growing}};
    const std::size_t colon = text.find(':');
    for (const auto& [word, what] : kWords) {
      if (!same_word(text.substr(0, colon), word)) continue;
      const std::optional<std::uint64_t> bytes =
          colon == text.npos ? 0 : parse_amount(text.substr(colon + 1), kByteUnits);
      if (!bytes || on.bytes_min[what]) return false;
      on.bytes_min[what] = bytes;
      return true;
    }
    return false;
  }
  static String wanted(const Row&) {
    return "off, or any, lost, possible, growing, each with or without :SIZE, with commas between";
  }
};
struct choice_parser {
  static std::optional<String> parse(std::string_view text, const Row& row) {
    const char* help = row.help;
    for (std::string_view word = next_choice(help); !word.empty(); word = next_choice(help))
      if (same_word(text, word)) return String(word);
    return {};
  }
  static String wanted(const Row& row) { return listed_choices(row.help); }
};

using Complain = void (*)(std::string_view line);

// --- The gate: CISTERN_FAIL_ON and what it depends on
constexpr char kFailOn[] = "CISTERN_FAIL_ON";
constexpr char kGateNames[][24] = {"CISTERN_FAIL_ON",       "CISTERN_FAIL_CODE",  "CISTERN_UNDECIDED_CODE",
                                   "CISTERN_FAIL_CHILDREN", "CISTERN_LEAK_CHECK", "CISTERN_LEAK_THREADS",
                                   "CISTERN_SUPPRESSIONS",  "CISTERN_SITES",      "CISTERN_HOST"};

// A wrong value of `variable`, or a name that is nearly that, leaves open what was to fail. Those that only matter
// beside a gate are no reason to shut one that nobody asked for.
bool shuts_gate(const Options& options, std::string_view variable) {
  if (variable == kFailOn) return true;
  return options.has_gate() &&
         std::any_of(std::begin(kGateNames), std::end(kGateNames), [&](const char* name) { return variable == name; });
}

// One that shuts the gate says what comes of that instead of what is done now.
[[gnu::noinline, gnu::cold]] void complain_about(Options& options, std::string_view variable, String line,
                                                 std::string_view what_now, Complain complain) {
  if (shuts_gate(options, variable)) {
    if (options.gate_fault.empty()) options.gate_fault = line;
    what_now = "; so processes that used GPU memory fail";
  }
  complain(line.append(what_now));
}

String wrong_value(const Row& row, const char* set, String wanted(const Row&)) {
  return String(row.variable) + ": '" + shown(set) + "' is not " + wanted(row);
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

// The value set by the user, else the default. An empty variable counts as unset, but for that of a gate: what was to
// be put in its place is missing.
template <class Parser, class Value>
void read_option(Value& value, const Row& row, const Entries& entries, Getenv getenv, Options& options,
                 Complain complain) {
  const char* set = entries.have(row.variable) ? getenv(row.variable) : nullptr;
  const bool is_set = set && (*set || std::is_same_v<Value, FailOn>);
  if (is_set) {
    if (auto parsed = Parser::parse(set, row)) {
      value = std::move(*parsed);
      return;
    }
  }
  if (auto fallback = Parser::parse(row.default_text, row)) value = std::move(*fallback);
  if (is_set)
    complain_about(options, row.variable, wrong_value(row, set, Parser::wanted), "; using " + String(row.default_text),
                   complain);
}

template <class Parser, class Value>
bool change_option(Value& value, const Row& row, const char* text, Complain complain) {
  auto parsed = Parser::parse(text, row);
  if (parsed) value = std::move(*parsed);
  if (!parsed) complain(wrong_value(row, text, Parser::wanted) + "; left as it is");
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
  return std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) { return name == row.variable; });
}

// The option that the user may have meant: one whose own part (after CISTERN_, or its last words) is close.
std::string_view closest(std::string_view name) {
  constexpr std::size_t kFar = 4, kTellingMin = 3;  // "ON" alone says nothing
  const std::string_view own = name.substr(kPrefix.size());
  std::string_view best;
  std::size_t best_distance = kFar;
  for (const Row& row : kRows) {
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
  String line = shown(name) + ": no such option";
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

// `least`: of an exit code.
String not_a_code(const char* variable, std::uint64_t code, int least) {
  return String(variable) + ": " + decimal(static_cast<double>(code), 0) + " is not an exit code from " +
         decimal(least, 0) + " to 255";
}

struct Code {
  const char* variable;
  std::uint64_t Options::*value;
  int least;
  std::uint64_t otherwise;
};
constexpr Code kCodes[] = {{"CISTERN_FAIL_CODE", &Options::fail_code, 1, 23},
                           {"CISTERN_UNDECIDED_CODE", &Options::undecided_code, 0, 24}};
bool is_exit_code(const Code& code, const Options& options) {
  return options.*code.value >= static_cast<std::uint64_t>(code.least) && options.*code.value <= 255;
}

}  // namespace

std::optional<bool> parse_on_off(std::string_view text) {
  for (const Truth& truth : kTruths)
    if (same_word(text, truth.word)) return truth.value;
  return {};
}

Options read_options(Getenv getenv, char** environment, Complain complain) {
  Options options;
  const Entries entries(environment);
  const Row* row = kRows;
#define OPTION(type, name, variable, default_text, help) \
  read_option<type##_parser>(options.name, *row++, entries, getenv, options, complain);
#include "shim/options.def"
  const auto is_set = [&](const char* name) {
    const char* const value = entries.have(name) ? getenv(name) : nullptr;
    return value && *value;
  };
  options.report_requested = is_set("CISTERN_REPORT");
  options.leak_check_is_set = is_set("CISTERN_LEAK_CHECK");
  for (const Code& code : kCodes) {
    if (is_exit_code(code, options)) continue;
    complain_about(options, code.variable, not_a_code(code.variable, options.*code.value, code.least),
                   "; using " + decimal(static_cast<double>(code.otherwise), 0), complain);
    options.*code.value = code.otherwise;
  }
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
  const Row* row = kRows;
#define OPTION(type, member, full_name, fallback, text)                                                 \
  if (name == row->variable) set = change_option<type##_parser>(changed.member, *row, value, complain); \
  ++row;
#include "shim/options.def"
  changed.report_requested |= name == "CISTERN_REPORT";
  changed.leak_check_is_set |= name == "CISTERN_LEAK_CHECK";
  for (const Code& code : kCodes) {
    if (is_exit_code(code, changed)) continue;
    complain(not_a_code(code.variable, changed.*code.value, code.least) + "; left as it is");
    return {};
  }
  return set ? std::optional(std::move(changed)) : std::nullopt;
}

}  // namespace cistern
