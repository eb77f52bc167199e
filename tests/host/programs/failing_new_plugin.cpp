// A C++ plugin of a C program: its runtime is not in the global order. Its failing new must still throw to itself.
#include <stdint.h>

#include <cstdio>
#include <new>
#include <string>
#include <vector>

namespace {
volatile std::size_t huge = PTRDIFF_MAX;
}

extern "C" int run_plugin() {
  std::vector<std::string> words(100, std::string(100, 'x'));
  try {
    ::operator delete(::operator new(huge));
  } catch (const std::bad_alloc&) {
    std::printf("the plugin caught bad_alloc, %zu words\n", words.size());
    return 0;
  }
  return 1;
}
