// What the system says of a file, asked without the C library's function: libraries that change what programs see of
// files have their own, and not all of these work at a process's end.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>

#include "pool/base/system_call.hpp"

namespace cistern {

// 0, or an error number.
inline int status_of_file(const char* path, struct stat& found, int flags = 0) {
  const long answer =
      system_call(SYS_newfstatat, static_cast<std::uintptr_t>(AT_FDCWD), reinterpret_cast<std::uintptr_t>(path),
                  reinterpret_cast<std::uintptr_t>(&found), static_cast<std::uintptr_t>(flags));
  return answer < 0 ? static_cast<int>(-answer) : 0;
}
inline int status_of_link(const char* path, struct stat& found) {
  return status_of_file(path, found, AT_SYMLINK_NOFOLLOW);
}
inline int status_of_file(int descriptor, struct stat& found) {
  const long answer =
      system_call(SYS_fstat, static_cast<std::uintptr_t>(descriptor), reinterpret_cast<std::uintptr_t>(&found));
  return answer < 0 ? static_cast<int>(-answer) : 0;
}

}  // namespace cistern
