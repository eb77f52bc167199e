// Sections of an ELF file with debug information, read by small pieces. Such a file may have many GiB, be damaged, or
// be written again meanwhile. So nothing is mapped (a mapping of a file that becomes shorter ends the process), and
// each read is checked against the section's end.
#pragma once
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// One section. Compressed ones are inflated as a whole when they are found.
class Section {
 public:
  Section(int file, const Elf64_Shdr& header);
  ~Section();
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

  std::uint64_t bytes() const { return bytes_; }

  // False: it is not all there.
  bool read(std::uint64_t at, void* to, std::size_t bytes) {
    const std::uint64_t in_window = at - window_at_;
    if (in_window >= window_bytes_ || bytes > window_bytes_ - in_window) return read_afar(at, to, bytes);  // .cpp
    std::memcpy(to, window_ + in_window, bytes);
    return true;
  }

 private:
  bool read_afar(std::uint64_t at, void* to, std::size_t bytes);
  void inflate(const Elf64_Shdr& header);

  int file_;
  std::uint64_t begin_;
  std::uint64_t bytes_;
  unsigned char* inflated_ = nullptr;  // libbacktrace's; the window then
  // The piece that was read last.
  char* window_ = nullptr;
  std::uint64_t window_at_ = 0;
  std::size_t window_bytes_ = 0;
};

// A part of a section. Offsets in debug information count from the begin of such a part.
struct Piece {
  Section* section = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;

  explicit operator bool() const { return section != nullptr; }
};

class DebugFile {
 public:
  // Empty unless it is a regular file, and one of this machine's byte order.
  explicit DebugFile(const String& path);
  ~DebugFile();
  DebugFile(const DebugFile&) = delete;
  DebugFile& operator=(const DebugFile&) = delete;

  bool is_open() const { return file_ >= 0; }
  // Where the file lies, without symbolic links; empty where /proc does not tell.
  String real_path() const;
  // As a whole; empty where there is none.
  Piece section(std::string_view name) {
    return section(name, [](const Piece&) { return true; });
  }
  // The first wanted section with that name.
  template <class Wanted>
  Piece section(std::string_view name, Wanted&& wanted) {
    Elf64_Shdr header;
    for (unsigned number = 1; (number = find(name, number, header)); ++number) {
      Section& found = opened(number, header);
      const Piece piece{&found, 0, found.bytes()};
      if (wanted(piece)) return piece;
      if (&sections_.back().section == &found) sections_.pop_back();
    }
    return {};
  }

 private:
  struct Named {
    Named(unsigned its_number, int file, const Elf64_Shdr& header) : number(its_number), section(file, header) {}
    unsigned number;  // in the file
    Section section;
  };

  // The number of the first from `number` on that has that name; 0: none.
  unsigned find(std::string_view name, unsigned number, Elf64_Shdr& header) const;
  Section& opened(unsigned number, const Elf64_Shdr& header);

  int file_;
  Elf64_Ehdr header_{};
  Deque<Named> sections_;
};

// Reads forward. Bytes outside the piece read as 0, and `failed` stays set from then on.
class Cursor {
 public:
  Cursor(const Piece& piece, std::uint64_t at) : piece_(piece), at_(at), failed_(at > piece.bytes || !piece) {}

  std::uint64_t at() const { return at_; }
  bool failed() const { return failed_; }
  bool has_more(std::uint64_t end) const { return !failed_ && at_ < end; }
  void fail() { failed_ = true; }

  void skip(std::uint64_t bytes) {
    if (failed_ || bytes > piece_.bytes - at_)
      failed_ = true;
    else
      at_ += bytes;
  }
  // A number of 1 to 8 bytes.
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    if (failed_ || bytes > piece_.bytes - at_ || !piece_.section->read(piece_.begin + at_, &value, bytes)) {
      failed_ = true;
      return 0;
    }
    at_ += bytes;
    return value;
  }
  std::uint64_t unsigned_leb();
  std::uint64_t signed_leb();
  // Up to its zero byte; of one that does not end soon, or at all, nothing.
  String text();
  void skip_text();

 private:
  Piece piece_;
  std::uint64_t at_;
  bool failed_;
};

}  // namespace cistern
