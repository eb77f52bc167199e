// Lines of /proc/PID/maps, one after another, read without an allocation.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cistern {

struct Mapping {
  std::uintptr_t first, end;
  bool is_readable, is_writable, is_executable, is_shared;
  std::string_view path;  // of a file, or "[stack]"; empty: anonymous
};

std::optional<Mapping> parse_mapping(std::string_view line);

// Of an open file, which is read from where it stands.
class MappingReader {
 public:
  explicit MappingReader(int file) : file_(file) {}
  // The path of one is good until the next. Nothing: the end. A line that is no mapping is passed over.
  std::optional<Mapping> next();

 private:
  std::optional<std::string_view> next_line();

  const int file_;
  std::size_t begin_ = 0, end_ = 0;
  char text_[8192];
};

}  // namespace cistern
