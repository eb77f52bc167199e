// A file system with one file, `weights`, whose reads take as long as those of a slow disk or network: a stand-in by
// FUSE, without a library. For root, where /dev/fuse is. Run by bench/staging.py.
//
//   slow_disk FOLDER MEBIBYTES MICROSECONDS_A_READ MEGABYTES_A_SECOND
//
// It says "ready" once the folder is mounted, and serves until its standard input ends. Then it unmounts the folder. A
// read that does not go on where the one before ended waits twice as long, as for a disk's head. Reads are served one
// after another.
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr std::uint64_t kFile = 2;
constexpr char kName[] = "weights";
constexpr std::size_t kReadBytesMost = 1 << 20, kHeaderBytes = 4096;
constexpr std::uint64_t kForEver = 1 << 20;

struct Disk {
  std::uint64_t bytes;
  std::chrono::nanoseconds of_a_read;
  double bytes_per_ns;
  std::uint64_t next = 0;  // where the last read ended

  void wait(std::uint64_t at, std::size_t count) {
    const auto seek = at == next ? of_a_read : 2 * of_a_read;
    next = at + count;
    std::this_thread::sleep_for(
        seek + std::chrono::nanoseconds(static_cast<long long>(static_cast<double>(count) / bytes_per_ns)));
  }
};

fuse_attr attributes(const Disk& disk, std::uint64_t node) {
  fuse_attr of{};
  of.ino = node;
  of.nlink = 1;
  of.mode = node == kFile ? S_IFREG | 0644 : S_IFDIR | 0755;
  of.size = node == kFile ? disk.bytes : 0;
  of.blksize = 4096;
  return of;
}

void answer(int fuse, std::uint64_t request, int error, const void* body = nullptr, std::size_t bytes = 0) {
  fuse_out_header head{static_cast<std::uint32_t>(sizeof head + bytes), -error, request};
  const iovec parts[] = {{&head, sizeof head}, {const_cast<void*>(body), bytes}};
  if (writev(fuse, parts, bytes ? 2 : 1) < 0 && errno != ENOENT) std::perror("slow_disk: an answer");
}

template <class Body>
void answer_with(int fuse, std::uint64_t request, const Body& body) {
  answer(fuse, request, 0, &body, sizeof body);
}

void begin(int fuse, std::uint64_t request, const void* body) {
  fuse_init_in in;
  std::memcpy(&in, body, offsetof(fuse_init_in, flags2));
  fuse_init_out out{};
  out.major = FUSE_KERNEL_VERSION;
  out.minor = in.minor;
  out.max_readahead = in.max_readahead;
  out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_MAX_PAGES);
  out.max_background = 16;
  out.congestion_threshold = 12;
  out.max_write = kReadBytesMost;
  out.max_pages = kReadBytesMost / 4096;
  answer_with(fuse, request, out);
}

void read(int fuse, std::uint64_t request, const void* body, Disk& disk) {
  static const std::vector<char> bytes(kReadBytesMost, 'w');
  fuse_read_in in;
  std::memcpy(&in, body, sizeof in);
  const std::uint64_t left = in.offset < disk.bytes ? disk.bytes - in.offset : 0;
  const auto count = static_cast<std::size_t>(left < in.size ? left : in.size);
  disk.wait(in.offset, count);
  answer(fuse, request, 0, bytes.data(), count);
}

void look_up(int fuse, std::uint64_t request, const void* body, const Disk& disk) {
  if (std::strcmp(static_cast<const char*>(body), kName) != 0) return answer(fuse, request, ENOENT);
  fuse_entry_out out{};
  out.nodeid = kFile;
  out.entry_valid = out.attr_valid = kForEver;
  out.attr = attributes(disk, kFile);
  answer_with(fuse, request, out);
}

void serve(int fuse, Disk& disk) {
  std::vector<char> room(kReadBytesMost + kHeaderBytes);
  while (true) {
    const ssize_t got = ::read(fuse, room.data(), room.size());
    if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
    if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) return;  // unmounted
    fuse_in_header head;
    std::memcpy(&head, room.data(), sizeof head);
    const void* const body = room.data() + sizeof head;
    switch (head.opcode) {
      case FUSE_INIT:
        begin(fuse, head.unique, body);
        break;
      case FUSE_LOOKUP:
        look_up(fuse, head.unique, body, disk);
        break;
      case FUSE_GETATTR:
        answer_with(fuse, head.unique, fuse_attr_out{kForEver, 0, 0, attributes(disk, head.nodeid)});
        break;
      case FUSE_OPEN:
        answer_with(fuse, head.unique, fuse_open_out{1, FOPEN_KEEP_CACHE, 0});
        break;
      case FUSE_READ:
        read(fuse, head.unique, body, disk);
        break;
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        break;  // they have no answer
      case FUSE_RELEASE:
      case FUSE_FLUSH:
        answer(fuse, head.unique, 0);
        break;
      default:
        answer(fuse, head.unique, ENOSYS);
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return std::fputs("slow_disk FOLDER MEBIBYTES MICROSECONDS_A_READ MEGABYTES_A_SECOND\n", stderr), 2;
  const char* const folder = arguments[1];
  const auto number = [&](int i) { return std::strtoull(arguments[i], nullptr, 0); };
  Disk disk{number(2) << 20, std::chrono::microseconds(number(3)), static_cast<double>(number(4)) / 1000};
  const int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  char how[64];
  std::snprintf(how, sizeof how, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
  if (fuse < 0 || mount("slow_disk", folder, "fuse", MS_NOSUID | MS_NODEV, how) != 0)
    return std::perror("slow_disk: mount"), 1;
  std::thread server([&] { serve(fuse, disk); });
  std::puts("ready");
  std::fflush(stdout);
  for (char ignored; ::read(STDIN_FILENO, &ignored, 1) > 0;) {
  }
  if (umount2(folder, MNT_DETACH) != 0) std::perror("slow_disk: umount");
  server.join();
}
