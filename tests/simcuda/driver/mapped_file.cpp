// See mapped_file.hpp.
#include "tests/simcuda/driver/mapped_file.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <fstream>
#include <sstream>
#include <string>

namespace simcuda {
namespace {

// Files of the kernel have a name in the root. A file that was deleted is where its folder is.
bool is_of_disk(const std::string& path) {
  for (const char* of_kernel : {"/memfd:", "/SYSV", "/dev/zero", "/anon_hugepage"})
    if (path.starts_with(of_kernel)) return false;
  struct statfs found {};
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return path.starts_with('/') && statfs(folder.c_str(), &found) == 0 && found.f_type != TMPFS_MAGIC;
}

}  // namespace

bool is_mapped_file(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    uintptr_t first = 0, end = 0;
    char dash = 0;
    std::string rights, offset, device, inode, path;
    fields >> std::hex >> first >> dash >> end >> rights >> offset >> device >> inode;
    if (address >= end) continue;
    std::getline(fields >> std::ws, path);
    return address >= first && is_of_disk(path);
  }
  return false;
}

}  // namespace simcuda
