// See recording_file.hpp. All by the system's own calls: it happens under locks.
#include "stats/recording_file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>

#include "pool/base/file_status.hpp"
#include "pool/base/system_call.hpp"

namespace cistern::recording {
namespace {

template <class T>
std::uintptr_t word(T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

int failure_of(long answer) { return answer < 0 ? static_cast<int>(-answer) : 0; }

long open_file(const char* path, int how) {
  return system_call(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD), word(path),
                     static_cast<std::uintptr_t>(how | O_RDWR | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW), 0666);
}

// Beyond the process's limit a write would also send it a signal.
bool limit_allows(std::uint64_t bytes) {
  rlimit limit;
  return system_call(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, word(&limit)) < 0 || bytes <= limit.rlim_cur;
}

int write_at(long file, std::uint64_t at, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const long written =
        system_call(SYS_pwrite64, static_cast<std::uintptr_t>(file), word(bytes.data()), bytes.size(), at);
    if (written == -EINTR) continue;
    if (written <= 0) return written ? failure_of(written) : ENOSPC;
    at += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

// Where the file system cannot reserve blocks, zeros that are written have them.
int reserve(long file, std::uint64_t from, std::uint64_t to) {
  long answer;
  do {
    answer = system_call(SYS_fallocate, static_cast<std::uintptr_t>(file), 0, from, to - from);
  } while (answer == -EINTR);
  if (answer != -EOPNOTSUPP && answer != -ENOSYS) return failure_of(answer);
  static constexpr std::uint8_t kZeros[4096] = {};
  for (; from < to; from += sizeof kZeros) {
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(to - from, sizeof kZeros));
    if (const int failure = write_at(file, from, {kZeros, bytes})) return failure;
  }
  return 0;
}

class Descriptor {
 public:
  explicit Descriptor(long number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) system_call(SYS_close, static_cast<std::uintptr_t>(number_));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  long number() const { return number_; }
  int failure() const { return failure_of(number_); }

 private:
  const long number_;
};

}  // namespace

int File::make(const char* path) {
  const Descriptor file(open_file(path, O_CREAT | O_EXCL));
  struct stat status;
  if (file.failure()) return file.failure();
  if (const int failure = status_of_file(static_cast<int>(file.number()), status)) return failure;
  path_ = path;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return 0;
}

long File::open() const {
  const long file = open_file(path_, 0);
  struct stat status;
  if (file < 0) return file;
  if (!status_of_file(static_cast<int>(file), status) && status.st_dev == device_ && status.st_ino == inode_)
    return file;
  const Descriptor another(file);
  return -ENOENT;
}

int File::grow(std::uint64_t bytes_before, std::uint64_t bytes) {
  if (!limit_allows(bytes)) return EFBIG;
  const Descriptor file(open());
  return file.failure() ? file.failure() : reserve(file.number(), bytes_before, bytes);
}

void* File::map(std::uint64_t bytes, int& error) {
  const Descriptor file(open());
  error = file.failure();
  if (error) return nullptr;
  const long mapped = system_call(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                  static_cast<std::uintptr_t>(file.number()), 0);
  const bool failed = mapped < 0 && mapped >= -4095;
  if (failed) error = static_cast<int>(-mapped);
  return failed ? nullptr : reinterpret_cast<void*>(mapped);
}

int File::cut(std::uint64_t bytes) {
  const Descriptor file(open());
  if (file.failure()) return file.failure();
  return failure_of(system_call(SYS_ftruncate, static_cast<std::uintptr_t>(file.number()), bytes));
}

int File::append(std::uint64_t at, std::span<const std::uint8_t> bytes) {
  if (!limit_allows(at + bytes.size())) return EFBIG;
  const Descriptor file(open());
  return file.failure() ? file.failure() : write_at(file.number(), at, bytes);
}

void File::remove() { system_call(SYS_unlinkat, static_cast<std::uintptr_t>(AT_FDCWD), word(path_), 0); }

}  // namespace cistern::recording
