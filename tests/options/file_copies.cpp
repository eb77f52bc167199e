// Copies of 1 MiB to the device and back, of memory that the arguments name, so many of each:
//   heap=N       the program's malloc
//   mapped=N     anonymous memory that the program maps
//   shared=N     memory of memfd_create
//   file=N       a mapped file of the folder that the program runs in, in the page cache
// The file system of that folder comes first on stdout: "memory" or "disk".
#include <cuda_runtime_api.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

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
    char* const memory = memory_of(argument.substr(0, sign));
    for (int copies = std::atoi(argument.c_str() + sign + 1); copies > 0; --copies) {
      NEED(cudaMemcpy(device, memory, kBytes, cudaMemcpyHostToDevice));
      memory[0] = 'x';
      NEED(cudaMemcpy(memory, device, kBytes, cudaMemcpyDeviceToHost));
      if (memory[0] != 'w') need(1, "a copy that brought something else back");
    }
  }
  NEED(cudaFree(device));
}
