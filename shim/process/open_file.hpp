// A file that is open for reading while the object lives. All system calls are raw: the C library's functions may be
// another library's.
#pragma once
#include <fcntl.h>

#include <cstdint>

#include "pool/base/system_call.hpp"

namespace cistern {

class OpenFile {
 public:
  explicit OpenFile(const char* path)
      : file_(system_call(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD), reinterpret_cast<std::uintptr_t>(path),
                          static_cast<std::uintptr_t>(O_RDONLY | O_CLOEXEC))) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (*this) system_call(SYS_close, number());
  }

  explicit operator bool() const { return file_ >= 0; }
  std::uintptr_t number() const { return static_cast<std::uintptr_t>(file_); }

 private:
  const long file_;
};

}  // namespace cistern
