// The file of a recording, as the system sees it. It is opened for each step and closed again: programs close
// descriptors that they do not know, and take their numbers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace cistern::recording {

// `path` is absolute and stays.
class File {
 public:
  // Makes a file that was not there, without contents. 0, or errno: EEXIST.
  int make(const char* path);
  // The part before `bytes` has its blocks on the disk from now on: no write to it ends the process. 0, or errno.
  int grow(std::uint64_t bytes_before, std::uint64_t bytes);
  // Shared; of a file that will have so many bytes. Null: errno is in `error`.
  void* map(std::uint64_t bytes, int& error);
  int cut(std::uint64_t bytes);
  int append(std::uint64_t at, std::span<const std::uint8_t> bytes);
  void remove();

 private:
  // The kernel's answer. A file that is another one by now is none.
  long open() const;

  const char* path_ = nullptr;
  std::uint64_t device_ = 0, inode_ = 0;
};

}  // namespace cistern::recording
