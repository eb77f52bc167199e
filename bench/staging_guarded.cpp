// Ways to copy memory that another thread may unmap meanwhile, by one thread, where what would fault is an answer
// (pool/staging/guarded_copy.hpp), beside what needs the memory to stay. From and to memory that no cache holds, of
// small and of huge pages and of a file, and a ring of chunks. The same follows for pages that are not mapped before
// their copy. Prints tables: staging_guarded [SECONDS] [KIB_OF_PIECE].
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "pool/staging/guarded_copy.hpp"
#include "pool/staging/streaming_copy.hpp"

namespace {

using cistern::staging::Guarded;
using cistern::staging::Stores;

constexpr std::size_t kKiB = 1 << 10, kMiB = 1 << 20, kHuge = 2 * kMiB;
constexpr std::size_t kSourceBytes = 384 * kMiB, kRingBytes = 16 * kMiB, kBounceBytes = 128 * kKiB;

void need(bool holds, const char* what) {
  if (!holds) std::perror(what), std::exit(1);
}

char* map_touched(std::size_t bytes, int file, int advice) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  char* at = static_cast<char*>(mmap(nullptr, bytes + (file < 0 ? kHuge : 0), PROT_READ | PROT_WRITE, flags, file, 0));
  need(at != MAP_FAILED, "mmap");
  if (file < 0) at += -reinterpret_cast<std::uintptr_t>(at) % kHuge;
  madvise(at, bytes, advice);
  std::memset(at, 1, bytes);
  return at;
}

// A file in memory that is mapped, a pipe, and memory that stays in the second cache.
struct Helps {
  int file = memfd_create("ring", 0), pipe[2];
  char *of_file, *bounce = map_touched(kBounceBytes, -1, MADV_NOHUGEPAGE);
  Helps() {
    need(ftruncate(file, kRingBytes) == 0 && ::pipe(pipe) == 0, "set-up");
    fcntl(pipe[1], F_SETPIPE_SZ, kMiB);
    of_file = map_touched(kRingBytes, file, MADV_NORMAL);
  }
};

struct Copy {
  char* to;
  const char* from;
  std::size_t bytes, at;  // where in the ring
};

void by_process_vm(const Copy& what, Guarded which) {
  need(cistern::staging::guarded_copy({what.to, what.from, 0, 0, what.bytes, 1}, which), "process_vm");
}
// All pages in one call before the copy (Linux 5.14).
void by_populated_process_vm(const Copy& what, Guarded which) {
  const bool reads = which == Guarded::source;
  constexpr int kPopulateRead = 22, kPopulateWrite = 23;
  need(madvise(reads ? const_cast<char*>(what.from) : what.to, what.bytes, reads ? kPopulateRead : kPopulateWrite) == 0,
       "populate");
  by_process_vm(what, which);
}
void by_pipe(const Helps& with, char* to, const char* from, std::size_t bytes) {
  while (bytes != 0) {
    const iovec pages{const_cast<char*>(from), bytes};
    const ssize_t in_pipe = vmsplice(with.pipe[1], &pages, 1, 0);
    need(in_pipe > 0, "vmsplice");
    for (ssize_t at = 0, out; at < in_pipe; at += out)
      need((out = read(with.pipe[0], to + at, static_cast<std::size_t>(in_pipe - at))) > 0, "read");
    to += in_pipe, from += in_pipe, bytes -= static_cast<std::size_t>(in_pipe);
  }
}
template <class Part>
void in_parts(const Copy& what, Part part) {
  for (std::size_t at = 0; at < what.bytes; at += kBounceBytes)
    part(what.to + at, what.from + at, std::min(kBounceBytes, what.bytes - at));
}

struct Way {
  const char* name;
  void (*copy)(const Helps& with, const Copy& what);
};

constexpr Way kStays[] = {
    {"memcpy (must stay)", [](const Helps&, const Copy& what) { std::memcpy(what.to, what.from, what.bytes); }},
    {"streaming (must stay)",
     [](const Helps&, const Copy& what) { streaming_copy(what.to, what.from, what.bytes, Stores::streaming); }}};
constexpr Way kToDevice[] = {
    {"process_vm_readv", [](const Helps&, const Copy& what) { by_process_vm(what, Guarded::source); }},
    {"populated, process_vm_readv",
     [](const Helps&, const Copy& what) { by_populated_process_vm(what, Guarded::source); }},
    {"the same in parts, streamed on",
     [](const Helps& with, const Copy& what) {
       in_parts(what, [&](char* to, const char* from, std::size_t bytes) {
         by_process_vm({with.bounce, from, bytes, 0}, Guarded::source);
         streaming_copy(to, with.bounce, bytes, Stores::streaming);
       });
     }},
    {"vmsplice, read", [](const Helps& with, const Copy& what) { by_pipe(with, what.to, what.from, what.bytes); }},
    {"the same in parts, streamed on",
     [](const Helps& with, const Copy& what) {
       in_parts(what, [&](char* to, const char* from, std::size_t bytes) {
         by_pipe(with, with.bounce, from, bytes);
         streaming_copy(to, with.bounce, bytes, Stores::streaming);
       });
     }},
    {"pwrite into a memfd's chunk",
     [](const Helps& with, const Copy& what) {
       need(pwrite(with.file, what.from, what.bytes, static_cast<off_t>(what.at)) > 0, "pwrite");
     }},
    {"the same in parts, streamed on", [](const Helps& with, const Copy& what) {
       in_parts(what, [&](char* to, const char* from, std::size_t bytes) {
         need(pwrite(with.file, from, bytes, 0) > 0, "pwrite");
         streaming_copy(to, with.of_file, bytes, Stores::streaming);
       });
     }}};
constexpr Way kToHost[] = {
    {"process_vm_writev", [](const Helps&, const Copy& what) { by_process_vm(what, Guarded::target); }},
    {"populated, process_vm_writev",
     [](const Helps&, const Copy& what) { by_populated_process_vm(what, Guarded::target); }},
    {"vmsplice of the chunk, read",
     [](const Helps& with, const Copy& what) { by_pipe(with, what.to, what.from, what.bytes); }},
    {"pread of a memfd's chunk", [](const Helps& with, const Copy& what) {
       need(pread(with.file, what.to, what.bytes, static_cast<off_t>(what.at)) > 0, "pread");
     }}};

double now_seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// In turns of a few pieces, in random order: other processes are on the machine.
void measure(std::vector<Way> ways, const Helps& with, bool to_device, bool is_new, char* pageable, char* ring,
             std::size_t piece, double seconds) {
  constexpr int kPiecesOfATurn = 8;
  std::vector<std::vector<double>> times(ways.size());
  std::vector<std::size_t> order(ways.size());
  for (std::size_t way = 0; way < order.size(); ++way) order[way] = way;
  std::mt19937 random(1);
  std::size_t number = 0;
  for (const double begin = now_seconds(); now_seconds() - begin < seconds;) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t way : order)
      for (int i = 0; i < kPiecesOfATurn; ++i, ++number) {
        char* const outside = pageable + number % (kSourceBytes / piece) * piece;
        const std::size_t at = number % (kRingBytes / piece) * piece;
        if (is_new) madvise(outside, piece, MADV_DONTNEED);
        const double start = now_seconds();
        ways[way].copy(with, to_device ? Copy{ring + at, outside, piece, at} : Copy{outside, ring + at, piece, at});
        times[way].push_back(now_seconds() - start);
      }
  }
  for (std::size_t way = 0; way < ways.size(); ++way) {
    std::sort(times[way].begin(), times[way].end());
    const auto rate = [&](std::size_t of_ten) {
      return static_cast<double>(piece) / times[way][times[way].size() * of_ten / 10] / (1 << 30);
    };
    std::printf("  %-34s%8.2f%8.2f\n", ways[way].name, rate(5), rate(1));
  }
}

}  // namespace

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 5;
  const std::size_t piece = (count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 256) * kKiB;
  const Helps with;
  char* const ring = map_touched(kRingBytes, -1, MADV_NOHUGEPAGE);
  char path[] = "/var/tmp/staging-XXXXXX";
  const int file = mkstemp(path);
  need(file >= 0 && unlink(path) == 0 && ftruncate(file, kSourceBytes) == 0, path);
  const struct {
    const char* name;
    int file, advice;
    bool is_new;
  } sources[] = {{"pages of 4 KiB", -1, MADV_NOHUGEPAGE, false},
                 {"huge pages", -1, MADV_HUGEPAGE, false},
                 {"a file", file, MADV_NORMAL, false},
                 {"new pages of 4 KiB", -1, MADV_NOHUGEPAGE, true},
                 {"pages of a file that are not mapped yet", file, MADV_NORMAL, true}};
  std::printf("One thread, pieces of %zu KiB; GiB/s: median, fastest tenth\n", piece / kKiB);
  for (const auto& source : sources) {
    char* const pageable = map_touched(kSourceBytes, source.file, source.advice);
    for (const bool to_device : {true, false}) {
      std::printf("%s, %s\n", source.name, to_device ? "to a device" : "to the host");
      std::vector<Way> ways(std::begin(kStays), std::end(kStays));
      if (to_device)
        ways.insert(ways.end(), std::begin(kToDevice), std::end(kToDevice));
      else
        ways.insert(ways.end(), std::begin(kToHost), std::end(kToHost));
      measure(ways, with, to_device, source.is_new, pageable, ring, piece, seconds);
    }
    munmap(pageable, kSourceBytes);
  }
}
