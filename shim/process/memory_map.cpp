// See memory_map.hpp.
#include "shim/process/memory_map.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "pool/base/system_call.hpp"

namespace cistern {
namespace {

// Up to `separator`, which is taken off as well.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == text.npos ? text.size() : at + 1);
  return part;
}

std::optional<std::uint64_t> number_in(std::string_view text, int base = 16) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

// "7f0e4000-7f0e5000 rw-p 00000000 00:00 0      [heap]"
std::optional<Mapping> parse_mapping(std::string_view line) {
  const auto first = number_in(take_until(line, '-')), end = number_in(take_until(line, ' '));
  const std::string_view rights = take_until(line, ' ');
  if (!first || !end || *end <= *first || rights.size() != 4) return std::nullopt;
  const auto offset = number_in(take_until(line, ' '));
  const auto major = number_in(take_until(line, ':')), minor = number_in(take_until(line, ' '));
  const auto inode = number_in(take_until(line, ' '), 10);
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return Mapping{.first = *first,
                 .end = *end,
                 .is_readable = rights[0] == 'r',
                 .is_writable = rights[1] == 'w',
                 .is_executable = rights[2] == 'x',
                 .is_shared = rights[3] == 's',
                 .offset = offset.value_or(0),
                 .device = device_number(major.value_or(0), minor.value_or(0)),
                 .inode = inode.value_or(0),
                 .path = line};
}

std::optional<std::string_view> LineReader::next() {
  for (;;) {
    const auto* const at = static_cast<const char*>(memchr(text_ + begin_, '\n', end_ - begin_));
    if (at) {
      const std::string_view line(text_ + begin_, static_cast<std::size_t>(at - text_) - begin_);
      begin_ += line.size() + 1;
      return line;
    }
    if (begin_ == 0 && end_ == sizeof text_) end_ = 0;  // longer than any path may be
    memmove(text_, text_ + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const long bytes = system_call(SYS_read, static_cast<std::uintptr_t>(file_),
                                   reinterpret_cast<std::uintptr_t>(text_ + end_), sizeof text_ - end_);
    if (bytes <= 0) return std::nullopt;
    end_ += static_cast<std::size_t>(bytes);
  }
}

std::optional<Mapping> MappingReader::next() {
  while (const auto line = lines_.next())
    if (const auto mapping = parse_mapping(*line)) return mapping;
  return std::nullopt;
}

}  // namespace cistern
