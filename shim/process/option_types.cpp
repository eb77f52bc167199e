// See option_types.hpp.
//
// The words that are compared lie inside tables: as literals the linker would merge each into another one of the whole
// library that ends alike, and a small program would touch a page for it.
#include "shim/process/option_types.hpp"

#include <span>

namespace cistern {
namespace {

struct Unit {
  char suffix[4];
  std::uint64_t factor;
};
constexpr std::uint64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024, kTiB = kGiB * 1024;
constexpr std::uint64_t kKB = 1000, kMB = kKB * 1000, kGB = kMB * 1000, kTB = kGB * 1000;
constexpr Unit kByteUnits[] = {{"", 1},     {"B", 1},      {"K", kKiB},   {"KiB", kKiB}, {"KB", kKB},
                               {"M", kMiB}, {"MiB", kMiB}, {"MB", kMB},   {"G", kGiB},   {"GiB", kGiB},
                               {"GB", kGB}, {"T", kTiB},   {"TiB", kTiB}, {"TB", kTB}};
constexpr std::uint64_t kMicrosecond = 1000, kMillisecond = kMicrosecond * 1000, kSecond = kMillisecond * 1000,
                        kMinute = kSecond * 60, kHour = kMinute * 60;
constexpr Unit kTimeUnits[] = {{"", kSecond},  {"us", kMicrosecond}, {"ms", kMillisecond}, {"s", kSecond},
                               {"m", kMinute}, {"min", kMinute},     {"h", kHour}};

struct Truth {
  char word[6];
  bool value;
};
constexpr Truth kTruths[] = {{"on", true},   {"1", true},  {"true", true},   {"yes", true},
                             {"off", false}, {"0", false}, {"false", false}, {"no", false}};

// --- Numbers
// The digits that the text begins with, which are taken off it.
std::string_view take_digits(std::string_view& text) {
  std::size_t count = 0;
  while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

std::optional<std::uint64_t> number_of(std::string_view digits) {
  std::uint64_t number = 0;
  for (const char digit : digits) {
    if (__builtin_mul_overflow(number, std::uint64_t{10}, &number)) return {};
    if (__builtin_add_overflow(number, static_cast<std::uint64_t>(digit - '0'), &number)) return {};
  }
  return number;
}

// Nothing but digits.
std::optional<std::uint64_t> parse_whole(std::string_view text) {
  const std::string_view digits = take_digits(text);
  return digits.empty() || !text.empty() ? std::nullopt : number_of(digits);
}

// `factor` times 0.DIGITS, rounded down: exact for any number of digits, as each step rounds what is below one.
std::uint64_t part_of(std::uint64_t factor, std::string_view digits) {
  std::uint64_t part = 0;
  for (; !digits.empty(); digits.remove_suffix(1))
    part = (static_cast<std::uint64_t>(digits.back() - '0') * factor + part) / 10;
  return part;
}

// Digits, with or without a point and more digits, then one of the units, with or without a space before it. Nothing
// on overflow. Nor for what is more than 0 and would become 0: where 0 means "no limit" that would be one.
std::optional<std::uint64_t> parse_amount(std::string_view text, std::span<const Unit> units) {
  const std::string_view whole = take_digits(text);
  std::string_view fraction;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = take_digits(text);
    if (fraction.empty()) return {};
  }
  if (whole.empty()) return {};
  const bool is_apart = text.starts_with(' ') && text.size() > 1;
  if (is_apart) text.remove_prefix(1);
  const auto unit =
      std::find_if(units.begin(), units.end(), [text](const Unit& of) { return same_word(text, of.suffix); });
  if (unit == units.end() || (unit->factor == 1 && !fraction.empty())) return {};
  std::optional<std::uint64_t> number = number_of(whole);
  if (!number || __builtin_mul_overflow(*number, unit->factor, &*number)) return {};
  if (__builtin_add_overflow(*number, part_of(unit->factor, fraction), &*number)) return {};
  constexpr char kZero = '0';
  if (*number == 0 && fraction.find_first_not_of(kZero) != fraction.npos) return {};
  return number;
}

// The row's "1 to 255".
std::optional<std::uint64_t> parse_in_range(std::string_view text, const OptionRow& row) {
  const std::optional<std::uint64_t> number = parse_whole(text);
  std::string_view range = row.accepts;
  const std::optional<std::uint64_t> least = number_of(take_digits(range)),
                                     most = number_of(range.substr(std::min(range.rfind(' ') + 1, range.size())));
  return number && number >= least && number <= most ? number : std::nullopt;
}

// --- Words
// The next word of "a, b, c", which is taken off; empty: there was none.
std::string_view next_word(std::string_view& words) {
  constexpr std::size_t kBetween = 2;
  const std::string_view word = words.substr(0, words.find(','));
  words.remove_prefix(std::min(word.size() + kBetween, words.size()));
  return word;
}

// "gpu, all or off".
[[gnu::cold]] String listed(std::string_view words) {
  String text;
  for (std::string_view word = next_word(words); !word.empty(); word = next_word(words)) {
    if (!text.empty()) text += words.empty() ? " or " : ", ";
    text += word;
  }
  return text;
}

// As `word` spells it; "node:N" stands for every number of 32 bits.
std::optional<String> as_spelled(std::string_view text, std::string_view word) {
  if (!word.ends_with('N')) return same_word(text, word) ? std::optional(String(word)) : std::nullopt;
  const std::string_view name = word.substr(0, word.size() - 1);
  if (!same_word(text.substr(0, name.size()), name)) return {};
  text.remove_prefix(name.size());
  const std::optional<std::uint64_t> number = parse_whole(text);
  return number && number <= UINT32_MAX ? std::optional(String(name).append(text)) : std::nullopt;
}

// "lost", "lost:1MiB"; each once.
bool add(FailOn& on, std::string_view text, std::string_view words) {
  const std::size_t colon = text.find(':');
  for (auto& bytes_min : on.bytes_min) {
    if (!same_word(text.substr(0, colon), next_word(words))) continue;
    const std::optional<std::uint64_t> bytes =
        colon == text.npos ? 0 : parse_amount(text.substr(colon + 1), kByteUnits);
    if (!bytes || bytes_min) return false;
    bytes_min = bytes;
    return true;
  }
  return false;
}

}  // namespace

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_word(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (lower(a[i]) != lower(b[i])) return false;
  return true;
}

std::optional<bool> parse_on_off(std::string_view text) {
  for (const Truth& truth : kTruths)
    if (same_word(text, truth.word)) return truth.value;
  return {};
}

namespace option_types {

std::optional<bool> on_off::parse(std::string_view text, const OptionRow&) { return parse_on_off(text); }
String on_off::wanted(const OptionRow&) { return "on or off"; }

std::optional<std::uint64_t> count::parse(std::string_view text, const OptionRow& row) {
  return parse_in_range(text, row);
}
String count::wanted(const OptionRow& row) { return String("a whole number from ") + row.accepts; }

std::optional<std::uint64_t> percent::parse(std::string_view text, const OptionRow& row) {
  if (text.ends_with('%')) text.remove_suffix(1);
  return parse_in_range(text, row);
}
String percent::wanted(const OptionRow& row) { return String("a percentage from ") + row.accepts; }

std::optional<std::uint64_t> bytes::parse(std::string_view text, const OptionRow&) {
  return parse_amount(text, kByteUnits);
}
String bytes::wanted(const OptionRow&) { return "a size such as 512MiB or 1.5GB"; }

std::optional<DeviceLimit> limit::parse(std::string_view text, const OptionRow& row) {
  const std::optional<std::uint64_t> most = bytes::parse(text, row);
  return most ? std::optional(DeviceLimit{*most, false}) : std::nullopt;
}
String limit::wanted(const OptionRow& row) { return bytes::wanted(row); }

std::optional<std::uint64_t> duration::parse(std::string_view text, const OptionRow&) {
  return parse_amount(text, kTimeUnits);
}
String duration::wanted(const OptionRow&) { return "a time such as 250ms, 300s or 1.5h"; }

// Where the words begin with on and end with off, these may have any of their spellings.
std::optional<String> choice::parse(std::string_view text, const OptionRow& row) {
  std::string_view words = row.accepts;
  const std::string_view on = kTruths[0].word, off = kTruths[4].word;
  if (words.starts_with(on) && words.ends_with(off))
    if (const auto truth = parse_on_off(text)) text = *truth ? on : off;
  for (std::string_view word = next_word(words); !word.empty(); word = next_word(words))
    if (auto spelled = as_spelled(text, word)) return spelled;
  return {};
}
String choice::wanted(const OptionRow& row) { return listed(row.accepts); }

std::optional<String> path::parse(std::string_view text, const OptionRow&) { return String(text); }
String path::wanted(const OptionRow&) { return "a path"; }

std::optional<FailOn> list::parse(std::string_view text, const OptionRow& row) {
  constexpr char kOff[] = "off";
  FailOn on;
  if (same_word(text, kOff)) return on;
  while (true) {
    const std::size_t comma = text.find(',');
    if (!add(on, text.substr(0, comma), row.accepts)) return {};
    if (comma == text.npos) return on;
    text.remove_prefix(comma + 1);
  }
}
String list::wanted(const OptionRow& row) {
  return String("off or a comma-separated list of ") + row.accepts + ", each with an optional :SIZE";
}

}  // namespace option_types
}  // namespace cistern
