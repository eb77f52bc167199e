// Copies of 1 MiB to the device and back, of memory that the arguments name, so many of each:
//   heap=N       the program's malloc
//   mapped=N     anonymous memory that the program maps
//   shared=N     memory of memfd_create
//   file=N       a mapped file of the folder that the program runs in, in the page cache
//   new=N        such a file, mapped again for each copy; this one and the next four are copied to the device only
//   cold=N       as new, and no page of it is in the page cache
//   partly=N     as cold, but for the pages at each quarter
//   foreign=N    such a file, mapped once; it is not in the page cache, and the system does not tell that, because the
//                user may not write the file; only for root
//   long=N       a mapped file of 16 MiB, in the page cache
//   slices=N     64 KiB of a mapped file, one after another; to the device only
//   pieces=N     the same of the program's malloc
//   fresh=N      anonymous memory that is mapped for the copy; to the host only
// The file system of that folder comes first on stdout: "memory" or "disk"; after it "warm", where the system kept
// pages that it was asked to drop.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "need.hpp"

namespace {

constexpr size_t kBytes = size_t{1} << 20;

int new_file() {
  char name[] = "file-copies-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  return file;
}

char* mapping_of(int file) {
  const std::string bytes(kBytes, 'w');
  if (write(file, bytes.data(), kBytes) != static_cast<ssize_t>(kBytes)) std::abort();
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return static_cast<char*>(at);
}

void map_again(char* memory, int file) {
  if (mmap(memory, kBytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED) std::abort();
}

// Pages that some process maps are not dropped.
void drop_pages(char* memory, int file) {
  fsync(file);
  if (mmap(memory, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) std::abort();
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  map_again(memory, file);
  unsigned char pages[kBytes / 4096] = {};
  mincore(memory, kBytes, pages);
  if (std::any_of(std::begin(pages), std::end(pages), [](unsigned char page) { return page & 1; })) std::puts("warm");
}

void read_quarters(int file) {
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);  // no page is read beside them
  char byte = 0;
  for (size_t at = 0; at < kBytes; at += kBytes / 4)
    if (pread(file, &byte, 1, static_cast<off_t>(at)) != 1) std::abort();
}

void copy_mapped_anew(const std::string& kind, int copies, void* device) {
  const int file = new_file();
  char* const memory = mapping_of(dup(file));
  if (kind != "new") drop_pages(memory, file);
  if (kind == "foreign") {
    constexpr uid_t kNobody = 65534;
    if (fchmod(file, 0444) || seteuid(kNobody)) std::abort();
  }
  for (int copy = 0; copy < copies; ++copy) {
    if ((kind == "cold" || kind == "partly") && copy) drop_pages(memory, file);
    if (kind == "partly") read_quarters(file);
    if (kind == "new") map_again(memory, file);
    NEED(cudaMemcpy(device, memory, kBytes, cudaMemcpyHostToDevice));
  }
  if (seteuid(getuid())) std::abort();
}

void copy_long(int copies) {
  constexpr size_t kLongBytes = size_t{16} << 20;
  const int file = new_file();
  void *device = nullptr, *memory = nullptr;
  if (ftruncate(file, kLongBytes) != 0) std::abort();
  memory = mmap(nullptr, kLongBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  NEED(cudaMalloc(&device, kLongBytes));
  auto* const words = static_cast<uint32_t*>(memory);
  const size_t count = kLongBytes / sizeof *words;
  for (; copies > 0; --copies) {
    for (size_t i = 0; i < count; ++i) words[i] = static_cast<uint32_t>(i + 1);
    NEED(cudaMemcpy(device, memory, kLongBytes, cudaMemcpyHostToDevice));
    std::memset(memory, 0, kLongBytes);
    NEED(cudaMemcpy(memory, device, kLongBytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; ++i)
      if (words[i] != i + 1) need(1, "a copy that brought something else back");
  }
  munmap(memory, kLongBytes);
  NEED(cudaFree(device));
}

void copy_slices(const char* memory, int copies, void* device) {
  constexpr size_t kSliceBytes = size_t{64} << 10;
  for (int copy = 0; copy < copies; ++copy)
    NEED(cudaMemcpy(device, memory + static_cast<size_t>(copy) * kSliceBytes % kBytes, kSliceBytes,
                    cudaMemcpyHostToDevice));
}

void copy_to_new_memory(int copies, void* device) {
  NEED(cudaMemset(device, 'w', kBytes));
  for (; copies > 0; --copies) {
    void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(cudaMemcpy(at, device, kBytes, cudaMemcpyDeviceToHost));
    if (std::string_view(static_cast<char*>(at), kBytes).find_first_not_of('w') != std::string_view::npos)
      need(1, "a copy that brought something else");
    munmap(at, kBytes);
  }
}

char* memory_of(const std::string& kind) {
  if (kind == "file") return mapping_of(new_file());
  if (kind == "shared") return mapping_of(memfd_create("shared", 0));
  void* const at = kind == "heap" ? std::malloc(kBytes)
                                  : mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(at, 'w', kBytes);
  return static_cast<char*>(at);
}

void say_file_system() {
  const int file = new_file();
  struct statfs found {};
  fstatfs(file, &found);
  close(file);
  std::puts(found.f_type == TMPFS_MAGIC ? "memory" : "disk");
}

}  // namespace

int main(int count, char** arguments) {
  say_file_system();
  void* device = nullptr;
  NEED(cudaMalloc(&device, kBytes));
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const size_t sign = argument.find('=');
    const std::string kind = argument.substr(0, sign);
    int copies = std::atoi(argument.c_str() + sign + 1);
    if (kind == "new" || kind == "cold" || kind == "partly" || kind == "foreign") {
      copy_mapped_anew(kind, copies, device);
      continue;
    }
    if (kind == "slices" || kind == "pieces") {
      copy_slices(memory_of(kind == "slices" ? "file" : "heap"), copies, device);
      continue;
    }
    if (kind == "fresh") {
      copy_to_new_memory(copies, device);
      continue;
    }
    if (kind == "long") {
      copy_long(copies);
      continue;
    }
    for (char* const memory = memory_of(kind); copies > 0; --copies) {
      NEED(cudaMemcpy(device, memory, kBytes, cudaMemcpyHostToDevice));
      memory[0] = 'x';
      NEED(cudaMemcpy(memory, device, kBytes, cudaMemcpyDeviceToHost));
      if (memory[0] != 'w') need(1, "a copy that brought something else back");
    }
  }
  NEED(cudaFree(device));
}
