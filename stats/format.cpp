// See format.hpp.
#include "stats/format.hpp"

#include <charconv>
#include <cmath>

namespace cistern {
namespace {

String digits_of(std::uint64_t value) {
  char text[24];
  return String(text, std::to_chars(text, text + sizeof text, value).ptr);
}

// Length of the UTF-8 sequence that `text` begins with; 0 when it is not one (overlong, surrogate, cut off).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                             : (first & 0xF0) == 0xE0         ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (!length || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const unsigned second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return length;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

void append_json_control(String& out, char c) {
  switch (c) {
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
  }
  out += "\\u00";
  out += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
  out += "0123456789abcdef"[c & 15];
}

}  // namespace

String decimal(double value, int digits) {
  // Beyond this no figure of a report is meaningful, and NaN is not a number of JSON's.
  if (!(std::fabs(value) < 1e15)) value = 0;
  std::uint64_t scale = 1;
  for (int i = 0; i < digits; ++i) scale *= 10;
  const auto scaled = static_cast<std::uint64_t>(std::fabs(value) * static_cast<double>(scale) + 0.5);
  String text = value < 0 && scaled ? "-" : "";
  text += digits_of(scaled / scale);
  if (!digits) return text;
  const String fraction = digits_of(scaled % scale);
  text += '.';
  text.append(static_cast<std::size_t>(digits) - fraction.size(), '0');
  return text + fraction;
}

String grouped(std::uint64_t count) {
  String text = digits_of(count);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

String human_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return digits_of(bytes) + " B";
  constexpr const char* kUnits[] = {" KiB", " MiB", " GiB", " TiB", " PiB"};
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  // 1023.95 would be rounded to 1024.0 of its unit.
  while (value >= 1023.95 && unit < 4) value /= 1024, ++unit;
  return decimal(value, 1) + kUnits[unit];
}

String counted(std::uint64_t count, std::string_view noun) {
  String text = grouped(count);
  text += ' ';
  text += noun;
  if (count != 1) text += 's';
  return text;
}

String json_string(std::string_view text) {
  String out = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (!length) {
      out += "\\ufffd";
    } else if (text[0] == '"' || text[0] == '\\') {
      out += '\\';
      out += text[0];
    } else if (is_control(text[0])) {
      append_json_control(out, text[0]);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length ? length : 1);
  }
  return out + '"';
}

String printable(std::string_view text, std::size_t bytes_max) {
  String out;
  bool cut = false;
  while (!text.empty() && !cut) {
    const std::size_t length = utf8_length(text);
    cut = out.size() + (length ? length : 1) > bytes_max;
    if (cut) break;
    if (!length || is_control(text[0]))
      out += '?';
    else
      out += text.substr(0, length);
    text.remove_prefix(length ? length : 1);
  }
  return cut ? out + "..." : out;
}

}  // namespace cistern
