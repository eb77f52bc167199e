// A file that is open while the object lives. All system calls are raw: the C library's functions may be another
// library's.
#pragma once
#include <fcntl.h>

#include <cstdint>
#include <utility>

#include "pool/base/system_call.hpp"

namespace cistern {

class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(const char* path, int flags = O_RDONLY)
      : file_(system_call(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD), reinterpret_cast<std::uintptr_t>(path),
                          static_cast<std::uintptr_t>(flags | O_CLOEXEC))) {}
  OpenFile(OpenFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~OpenFile() {
    if (*this) system_call(SYS_close, number());
  }

  explicit operator bool() const { return file_ >= 0; }
  std::uintptr_t number() const { return static_cast<std::uintptr_t>(file_); }

 private:
  long file_ = -1;
};

}  // namespace cistern
