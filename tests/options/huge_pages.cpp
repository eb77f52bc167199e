// Copies a block to the device, and says whether the kernel was asked for huge pages for it; and for one that is too
// small, one that is not copied, and memory that is not malloc's.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "need.hpp"

namespace {

// The flags of the mapping that the middle of the block lies in.
bool asked_for(const char* block, size_t bytes) {
  const auto address = reinterpret_cast<unsigned long>(block + bytes / 2);
  std::FILE* const maps = std::fopen("/proc/self/smaps", "r");
  char line[512];
  bool here = false, asked = false;
  while (std::fgets(line, sizeof line, maps)) {
    unsigned long first, end;
    if (std::sscanf(line, "%lx-%lx ", &first, &end) == 2) here = first <= address && address < end;
    if (here && !std::strncmp(line, "VmFlags:", 8)) asked = std::strstr(line, " hg") != nullptr;
  }
  std::fclose(maps);
  return asked;
}

}  // namespace

int main() {
  constexpr size_t kBytes = 24 << 20, kSmall = 1 << 20;
  void* device = nullptr;
  need(cudaMalloc(&device, kBytes), "cudaMalloc");
  char* const copied = static_cast<char*>(std::malloc(kBytes));
  char* const other = static_cast<char*>(std::malloc(kBytes));
  char* const small = static_cast<char*>(std::malloc(kSmall));
  char* const mapped =
      static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (char* block : {copied, other, mapped}) std::memset(block, 1, kBytes);
  std::memset(small, 1, kSmall);
  need(cudaMemcpy(device, copied + 100, kBytes - 100, cudaMemcpyHostToDevice), "there");
  need(cudaMemcpy(device, small, kSmall, cudaMemcpyHostToDevice), "a small one");
  need(cudaMemcpy(mapped, device, kBytes, cudaMemcpyDeviceToHost), "back");
  std::printf("asked for: copied %d, other %d, small %d, mapped %d\n", asked_for(copied, kBytes),
              asked_for(other, kBytes), asked_for(small, kSmall), asked_for(mapped, kBytes));
  cudaFree(device);
  std::free(copied);
  std::free(other);
  std::free(small);
}
