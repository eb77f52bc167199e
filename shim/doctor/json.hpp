// A strict reader of JSON (RFC 8259): what a report says, which another process wrote, perhaps not to its end.
//
// It is our own because the object is loaded into every program, has neither exceptions nor type information, and the
// doctor runs before the C library is prepared: common readers for C++ need all three. The text stays where it is. It
// is checked once as a whole; then members are found by going over it again, which for a report is fast enough. Bytes
// in strings are taken as they are, UTF-8 or not: whoever shows them makes them printable.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern::doctor {

// Goes over a text. Each function steps over one thing, or answers false where there is none.
class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : text_(text) {}
  std::string_view rest() const { return text_; }

  bool take(char wanted) {
    if (!text_.starts_with(wanted)) return false;
    text_.remove_prefix(1);
    return true;
  }
  void space() {
    while (take(' ') || take('\n') || take('\t') || take('\r'))
      ;
  }
  bool string() {
    if (!take('"')) return false;
    while (!text_.empty() && text_.front() != '"') {
      if (static_cast<unsigned char>(text_.front()) < ' ') return false;
      if (take('\\') ? !escape() : !any()) return false;
    }
    return take('"');
  }
  // `depth`: how many more objects and arrays may lie within each other.
  bool value(int depth) {
    if (text_.starts_with('"')) return string();
    if (take('{')) return depth > 0 && items('}', depth, true);
    if (take('[')) return depth > 0 && items(']', depth, false);
    return word("true") || word("false") || word("null") || number();
  }
  bool colon() {
    space();
    if (!take(':')) return false;
    space();
    return true;
  }

 private:
  bool any() {
    text_.remove_prefix(1);
    return true;
  }
  bool word(std::string_view wanted) {
    if (!text_.starts_with(wanted)) return false;
    text_.remove_prefix(wanted.size());
    return true;
  }
  bool one_of(std::string_view wanted) { return !text_.empty() && wanted.find(text_.front()) != wanted.npos && any(); }
  bool escape() {
    constexpr std::string_view kHex = "0123456789abcdefABCDEF";
    if (!take('u')) return one_of("\"\\/bfnrt");
    return one_of(kHex) && one_of(kHex) && one_of(kHex) && one_of(kHex);
  }
  bool digits() {
    if (!one_of("0123456789")) return false;
    while (one_of("0123456789"))
      ;
    return true;
  }
  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (!one_of("eE")) return true;
    one_of("+-");
    return digits();
  }
  // Behind the opening bracket.
  bool items(char close, int depth, bool have_names) {
    space();
    if (take(close)) return true;
    do {
      space();
      if (have_names && (!string() || !colon())) return false;
      if (!value(depth - 1)) return false;
      space();
    } while (take(','));
    return take(close);
  }

  std::string_view text_;
};

class Json {
 public:
  static constexpr int kDepthMax = 32;  // a report has 6; each takes some of a small stack

  // Nothing: the text is not one whole value, or goes deeper than that.
  static std::optional<Json> parse(std::string_view text) {
    JsonScanner scanner(text);
    scanner.space();
    const std::string_view value = scanner.rest();
    if (!scanner.value(kDepthMax)) return {};
    const Json read(value.substr(0, value.size() - scanner.rest().size()));
    scanner.space();
    return scanner.rest().empty() ? std::optional(read) : std::nullopt;
  }

  // each(String name, Json value); none of what is no object.
  template <class Each>
  void for_each_member(Each each) const {
    JsonScanner scanner(text_);
    if (!scanner.take('{')) return;
    scanner.space();
    if (scanner.take('}')) return;
    do {
      scanner.space();
      const Json name = next(scanner, [&] { scanner.string(); });
      scanner.colon();
      const Json value = next(scanner, [&] { scanner.value(kDepthMax); });
      each(*name.string(), value);
      scanner.space();
    } while (scanner.take(','));
  }
  // The first of that name; without one a value of no type.
  Json operator[](std::string_view name) const {
    Json found{{}};
    for_each_member([&](const String& of, Json value) {
      if (found.text_.empty() && of == name) found = value;
    });
    return found;
  }
  std::optional<String> string() const;
  std::optional<std::uint64_t> count() const;  // a whole number, written as digits

 private:
  explicit Json(std::string_view text) : text_(text) {}
  template <class Step>
  static Json next(JsonScanner& scanner, Step step) {
    const std::string_view before = scanner.rest();
    step();
    return Json(before.substr(0, before.size() - scanner.rest().size()));
  }

  std::string_view text_;  // checked, and without space around it
};

namespace json_detail {

constexpr std::uint32_t kUnknownCharacter = 0xfffd, kPairBegin = 0xd800, kPairMiddle = 0xdc00, kPairEnd = 0xe000;

// Behind "\u", which is taken off with it.
inline std::uint32_t take_code(std::string_view& text) {
  std::uint32_t code = 0;
  for (const char digit : text.substr(0, 4))
    code = code * 16 + static_cast<std::uint32_t>(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
  text.remove_prefix(4);
  return code;
}

// Two escapes may be one character; half of such a pair is none.
inline std::uint32_t take_character(std::string_view& text) {
  const std::uint32_t first = take_code(text);
  if (first < kPairBegin || first >= kPairEnd) return first;
  if (first >= kPairMiddle || !text.starts_with("\\u")) return kUnknownCharacter;
  std::string_view rest = text.substr(2);
  const std::uint32_t second = take_code(rest);
  if (second < kPairMiddle || second >= kPairEnd) return kUnknownCharacter;
  text = rest;
  return 0x10000 + ((first - kPairBegin) << 10) + (second - kPairMiddle);
}

inline void add_utf8(String& to, std::uint32_t character) {
  const int more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  constexpr std::uint32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
  to += static_cast<char>(kFirst[more] | character >> (6 * more));
  for (int i = more - 1; i >= 0; --i) to += static_cast<char>(0x80 | (character >> (6 * i) & 63));
}

}  // namespace json_detail

inline std::optional<String> Json::string() const {
  constexpr std::string_view kEscapes = "bfnrt", kMeant = "\b\f\n\r\t";
  if (!text_.starts_with('"')) return {};
  std::string_view text = text_.substr(1, text_.size() - 2);
  String read;
  while (!text.empty()) {
    const bool is_escape = text.front() == '\\';
    const char one = text[is_escape ? 1 : 0];
    text.remove_prefix(is_escape ? 2 : 1);
    if (is_escape && one == 'u')
      json_detail::add_utf8(read, json_detail::take_character(text));
    else if (const std::size_t at = is_escape ? kEscapes.find(one) : kEscapes.npos; at != kEscapes.npos)
      read += kMeant[at];
    else
      read += one;
  }
  return read;
}

inline std::optional<std::uint64_t> Json::count() const {
  std::uint64_t number = 0;
  for (const char digit : text_) {
    if (digit < '0' || digit > '9' || __builtin_mul_overflow(number, std::uint64_t{10}, &number)) return {};
    if (__builtin_add_overflow(number, static_cast<std::uint64_t>(digit - '0'), &number)) return {};
  }
  return text_.empty() ? std::nullopt : std::optional(number);
}

}  // namespace cistern::doctor
