// The numbers that the program's own files get, before and after its first use of each kind of memory.
#include <fcntl.h>
#include <unistd.h>

#include "../program.hpp"

static void say_first(const char* when) {
  const int file = open("/dev/null", O_RDONLY);
  say("%s: %d", when, file);
  close(file);
}

int main() {
  say_first("at the start");
  unsigned* const block = device_block(5000);
  say_first("with a block of the device");
  void* const pinned = pinned_block(100);
  say_first("with a pinned block");
  std::vector<unsigned> words(4 << 20);
  unsigned* const large = device_block(words.size() * sizeof words[0]);
  NEED(cudaMemcpy(large, words.data(), words.size() * sizeof words[0], cudaMemcpyHostToDevice));
  NEED(cudaMemcpy(words.data(), large, words.size() * sizeof words[0], cudaMemcpyDeviceToHost));
  say_first("after copies");
  NEED(cudaFree(block));
  NEED(cudaFree(large));
  NEED(cudaFreeHost(pinned));
  say_first("at the end");
  return finish();
}
