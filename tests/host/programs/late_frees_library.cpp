// See late_frees.cpp: this destructor runs after the program's own, because the library was there first.
#include <cstdlib>

struct Holder {
  char* block = static_cast<char*>(std::malloc(100000));
  ~Holder() { std::free(block); }
};

Holder library_holder;
