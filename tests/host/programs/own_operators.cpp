// A library that replaces operator new and delete for the program it is linked with.
#include <cstdlib>
#include <new>

int own_news = 0;
int own_deletes = 0;

void* operator new(std::size_t bytes) {
  ++own_news;
  if (void* block = std::malloc(bytes)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept {
  ++own_deletes;
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept { ::operator delete(block); }
