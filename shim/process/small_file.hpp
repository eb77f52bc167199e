// Small files of /proc and /sys, read without an allocation: for who may not allocate, or has no memory left.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace cistern {

// The first bytes of a file, ended by a zero byte; empty where there is none.
template <std::size_t size>
class SmallFile {
 public:
  explicit SmallFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file == -1) return;
    const ssize_t bytes = read(file, text_, size - 1);
    text_[std::max<ssize_t>(bytes, 0)] = '\0';
    close(file);
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

// What is too long is cut, and names no file.
class FilePath {
 public:
  explicit FilePath(std::string_view text) { add(text); }
  void add(std::string_view text) { bytes_ += text.copy(text_ + bytes_, sizeof text_ - 1 - bytes_); }
  // What follows `marker` in its line of `text`; false: no line has it.
  bool add_rest_of_line(const char* text, const char* marker) {
    const char* const at = strstr(text, marker);
    if (!at) return false;
    const char* const rest = at + strlen(marker);
    add({rest, strcspn(rest, "\n")});
    return true;
  }
  const char* text() const { return text_; }

 private:
  char text_[640] = {};
  std::size_t bytes_ = 0;
};

}  // namespace cistern
