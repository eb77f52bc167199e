// Small files of /proc and /sys, read without an allocation and by the system's own calls. Callers may not allocate,
// have no memory left, or have stopped threads that may hold a lock of a library that stands before open.
#pragma once
#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "pool/base/system_call.hpp"

namespace cistern {

// The first bytes of a file, ended by a zero byte; empty where there is none.
template <std::size_t size>
class SmallFile {
 public:
  explicit SmallFile(const char* path) {
    const auto word = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
    const long file = system_call(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD), word(path), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    const long bytes = system_call(SYS_read, static_cast<std::uintptr_t>(file), word(text_), size - 1);
    text_[std::max(bytes, 0L)] = '\0';
    system_call(SYS_close, static_cast<std::uintptr_t>(file));
  }
  const char* text() const { return text_; }
  std::optional<std::uint64_t> number() const { return number_at(text_); }
  // The number that follows `name`.
  std::optional<std::uint64_t> number_after(const char* name) const {
    const char* const at = strstr(text_, name);
    return at ? number_at(at + strlen(name)) : std::nullopt;
  }

 private:
  static std::optional<std::uint64_t> number_at(const char* text) {
    while (*text == ' ' || *text == '\t') ++text;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text, text + strlen(text), value);
    return error == std::errc{} && end != text ? std::optional(value) : std::nullopt;
  }

  char text_[size] = {};
};

// A path that is too long is cut, and names no file.
class FilePath {
 public:
  constexpr explicit FilePath(std::string_view text) { add(text); }
  constexpr void add(std::string_view text) { bytes_ += text.copy(text_ + bytes_, sizeof text_ - 1 - bytes_); }
  // Adds the rest of the line of `text` that has `marker`; false: no line has it.
  bool add_rest_of_line(const char* text, const char* marker) {
    const char* const at = strstr(text, marker);
    if (!at) return false;
    const char* const rest = at + strlen(marker);
    add({rest, strcspn(rest, "\n")});
    return true;
  }
  const char* text() const { return text_; }
  std::string_view view() const { return {text_, bytes_}; }

 private:
  char text_[640] = {};
  std::size_t bytes_ = 0;
};

}  // namespace cistern
