// See suppressions_file.hpp.
#include "shim/core/suppressions_file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <new>

#include "pool/base/file_status.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern {
namespace {

constexpr std::size_t kBytesMax = std::size_t{1} << 20;

struct Noted {
  String path;
  SuppressionsFile file;
};
constinit const Noted* noted = nullptr;

std::uintptr_t word(long number) { return static_cast<std::uintptr_t>(number); }
std::uintptr_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

String sentence_of(long error) {
  char reason[128];
  return strerror_r(static_cast<int>(error), reason, sizeof reason);
}

// 0, or an error number.
long read_whole(long file, String& text) {
  char part[4096];
  for (long bytes = 1; bytes && text.size() <= kBytesMax;) {
    bytes = system_call(SYS_read, word(file), word(part), sizeof part);
    if (bytes == -EINTR) continue;
    if (bytes < 0) return -bytes;
    text.append(part, static_cast<std::size_t>(bytes));
  }
  return 0;
}

// A pipe gives its text to one reader only, and may keep him waiting.
SuppressionsFile read_now(const String& path) {
  SuppressionsFile read;
  const long file = system_call(SYS_openat, word(AT_FDCWD), word(from_start_directory(path).c_str()),
                                O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0) return {{}, sentence_of(-file)};
  struct stat status {};
  if (status_of_file(static_cast<int>(file), status) || !S_ISREG(status.st_mode)) {
    read.fault = "not a regular file";
  } else if (const long error = read_whole(file, read.text)) {
    read.fault = sentence_of(error);
  } else if (read.text.size() > kBytesMax) {
    read = {{}, "longer than 1 MiB"};
  }
  system_call(SYS_close, word(file));
  return read;
}

}  // namespace

void note_suppressions() {
  const String& path = options().suppressions;
  if (path.empty()) return;
  const Uncounted uncounted;
  noted = new (internal_allocate(sizeof(Noted))) Noted{path, read_now(path)};
}

SuppressionsFile suppressions_file() {
  const String& path = options().suppressions;
  if (path.empty()) return {};
  return noted && noted->path == path ? noted->file : read_now(path);
}

}  // namespace cistern
