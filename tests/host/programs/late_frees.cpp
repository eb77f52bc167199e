// Memory freed at every moment of the end: exit handler, static and thread-local destructors, those of a library
// (late_frees_library.cpp). 11 blocks of 100,000 bytes; all are freed by somebody, the last after main is long gone.
#include <cstdio>
#include <cstdlib>

struct Holder {
  char* block = static_cast<char*>(std::malloc(100000));
  ~Holder() { std::free(block); }
};

extern Holder library_holder;

namespace {
Holder holders[8];
thread_local Holder of_the_thread;
char* freed_by_handler = nullptr;
void handler() { std::free(freed_by_handler); }
}  // namespace

int main() {
  of_the_thread.block[0] = 1;
  freed_by_handler = static_cast<char*>(std::malloc(100000));
  std::atexit(handler);
  std::printf("%d\n", library_holder.block != nullptr);
  return 0;
}
