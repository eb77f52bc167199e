// Lines of files of /proc, and those of /proc/PID/maps, one after another, read without an allocation.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cistern {

struct Mapping {
  std::uintptr_t first, end;
  bool is_readable, is_writable, is_executable, is_shared;
  std::uint64_t offset;         // in the file, where `first` lies
  std::uint64_t device, inode;  // the file's; inode 0: there is no file
  std::string_view path;        // the file's path, or "[stack]"; empty: anonymous
};

// The number of a device as `Mapping` and mount points have it.
constexpr std::uint64_t device_number(std::uint64_t major, std::uint64_t minor) { return major << 32 | minor; }

std::optional<Mapping> parse_mapping(std::string_view line);

// The lines of an open file, from its position on. A line is good until the next one. Nothing: the end.
class LineReader {
 public:
  explicit LineReader(int file) : file_(file) {}
  std::optional<std::string_view> next();

 private:
  const int file_;
  std::size_t begin_ = 0, end_ = 0;
  char text_[8192];
};

class MappingReader {
 public:
  explicit MappingReader(int file) : lines_(file) {}
  // The path of one is good until the next. Nothing: the end. A line that is no mapping is passed over.
  std::optional<Mapping> next();

 private:
  LineReader lines_;
};

}  // namespace cistern
