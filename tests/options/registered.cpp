// A library that registers the program's buffers with the driver, and forgets one when it hears that its pages went
// back to the system (unmap_hooks.c); it ends the registration before its next call, since hooks make no driver calls.
// "free": 30 buffers, each freed and not unregistered. "resize": one that grows and shrinks. "ended": how many of two
// frees are heard whose registration has ended, by its call or with its context.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/options/need.hpp"

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kMost = 64;

struct Registered {
  char* memory;
  size_t bytes;
  bool unmapped;
};
Registered cache[kMost];
int cached = 0, accepted = 0;
const char* watched = nullptr;
int heard = 0;

// Runs inside the allocator.
void note_unmapped(void* memory, size_t bytes) {
  char* const begin = static_cast<char*>(memory);
  for (int i = 0; i < cached; ++i)
    if (begin < cache[i].memory + cache[i].bytes && cache[i].memory < begin + bytes) cache[i].unmapped = true;
  if (watched && begin <= watched && watched < begin + bytes) ++heard;
}

void drop_unmapped() {
  int kept = 0;
  for (int i = 0; i < cached; ++i) {
    if (cache[i].unmapped) {
      NEED(cudaHostUnregister(cache[i].memory));
    } else {
      cache[kept++] = cache[i];
    }
  }
  cached = kept;
}

void use(char* memory, size_t bytes) {
  drop_unmapped();
  std::memset(memory, 1, bytes);
  const cudaError_t answer = cudaHostRegister(memory, bytes, 0);
  if (answer != cudaSuccess) return void(std::printf("refused: %d\n", answer));
  cache[cached++] = {memory, bytes, false};
  ++accepted;
}

char* block(size_t bytes) {
  char* const memory = static_cast<char*>(std::malloc(bytes));
  NEED(memory == nullptr);
  return memory;
}

void free_registered() {
  for (int i = 0; i < 30; ++i) {
    char* const memory = block(40 * kMiB);
    use(memory, 40 * kMiB);
    std::free(memory);
  }
}

void resize_registered() {
  char* memory = block(8 * kMiB);
  constexpr size_t kSizes[] = {8, 12, 5, 9, 3, 40, 44, 1};
  for (const size_t mib : kSizes) {
    memory = static_cast<char*>(std::realloc(memory, mib * kMiB));
    NEED(memory[0] != 1 && mib != 8);
    use(memory, mib * kMiB);
  }
  std::free(memory);
}

void free_unregistered() {
  char* const first = block(4 * kMiB);
  NEED(cudaHostRegister(first, 4 * kMiB, 0));
  NEED(cudaHostUnregister(first));
  watched = first;
  std::free(first);
  char* const second = block(4 * kMiB);
  NEED(cudaHostRegister(second, 4 * kMiB, 0));
  NEED(cudaDeviceReset());
  watched = second;
  std::free(second);
  std::printf("heard %d\n", heard);
}

}  // namespace

int main(int count, char** arguments) {
  using Listen = void (*)(void (*)(void*, size_t));
  const auto listen = reinterpret_cast<Listen>(dlsym(RTLD_DEFAULT, "listen_to_unmaps"));
  NEED(count < 2 || !listen);
  NEED(cudaFree(nullptr));
  listen(note_unmapped);
  const char what = arguments[1][0];
  what == 'f' ? free_registered() : what == 'r' ? resize_registered() : free_unregistered();
  std::printf("accepted %d\n", accepted);
  return 0;
}
