// See system.hpp.
#include "pool/heap/system.hpp"

#include <elf.h>
#include <errno.h>
#include <linux/sysinfo.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "pool/base/own_mapping.hpp"
#include "pool/base/process_limit.hpp"
#include "pool/base/process_start.hpp"
#include "pool/base/system_call.hpp"

namespace cistern::host_pool {
namespace {

#ifndef MADV_POPULATE_WRITE  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

bool map_memory(void* at, std::size_t bytes) {
  void* mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped == at) return true;
  if (mapped != MAP_FAILED) {  // a kernel that does not know the flag
    munmap(mapped, bytes);
    errno = EEXIST;
  }
  return false;
}

bool map_descriptors(void* at, std::size_t bytes) {
  void* const mapped = map_own_memory(bytes, at, MAP_FIXED_NOREPLACE);
  if (mapped && mapped != at) unmap_own_memory(mapped, bytes);
  return mapped == at;
}

// Locked memory cannot be given back: then it is wiped, so that it reads as zero all the same.
void give_memory_back(void* at, std::size_t bytes) {
  if (madvise(at, bytes, MADV_DONTNEED) != 0) std::memset(at, 0, bytes);
}

bool unmap_memory(void* at, std::size_t bytes) { return munmap(at, bytes) == 0; }

bool renew_memory(void* at, std::size_t bytes) {
  return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
}

// Not by the C library's mremap: some who interpose it (UCX) know four of its arguments, and the pages would move to
// wherever a register points. That `from` has lost its pages is said to all who listen by giving back what is none.
// Before the kernel looks whether it can move the source it may unmap the destination, so that is made good. Where
// a filter refuses both calls nothing was unmapped.
bool move_memory(void* from, void* to, std::size_t bytes) {
  const long moved = system_call(SYS_mremap, address_of(from), bytes, bytes,
                                 MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, address_of(to));
  if (static_cast<std::uintptr_t>(moved) == address_of(to)) {
    give_memory_back(from, bytes);
    return true;
  }
  renew_memory(to, bytes);
  return false;
}

void make_memory_resident(void* at, std::size_t bytes) { madvise(at, bytes, MADV_POPULATE_WRITE); }

[[gnu::hot]] std::uint64_t limit_bytes() {
  return std::min(limit_of_process(RLIMIT_AS), limit_of_process(RLIMIT_DATA));
}

std::uint64_t physical_bytes() {
  struct sysinfo info;
  if (system_call(SYS_sysinfo, reinterpret_cast<std::uintptr_t>(&info)) != 0) return std::uint64_t{16} << 30;
  return std::uint64_t{info.totalram} * info.mem_unit;
}

std::uint64_t random_word() {
  std::uint64_t words[2] = {0x9e3779b97f4a7c15, 0x2545f4914f6cdd1d};
  if (const auto* given = reinterpret_cast<const char*>(start_value(AT_RANDOM)))
    std::memcpy(words, given, sizeof words);
  return (words[0] ^ (words[1] >> 7)) * 0x9e3779b97f4a7c15;
}

}  // namespace

constinit System region_system = {map_memory,   map_descriptors, give_memory_back,     unmap_memory,
                                  renew_memory, move_memory,     make_memory_resident, limit_bytes};

[[gnu::hot]] Machine look_at_machine() {
  const CallingSystem calling;
  find_clock();
  return {physical_bytes(), random_word(), limit_bytes()};
}

}  // namespace cistern::host_pool
