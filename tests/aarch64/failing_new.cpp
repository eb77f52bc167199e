// An operator new that must fail: the program's own handler runs and its own bad_alloc is caught, through our frames.
#include <cstdint>
#include <cstdio>
#include <new>

namespace {

int handler_calls = 0;

void handler() {
  if (++handler_calls == 2) std::set_new_handler(nullptr);
}

}  // namespace

int main() {
  std::set_new_handler(handler);
  try {
    // Read at run time, so that the compiler cannot reject the size.
    volatile std::size_t bytes = PTRDIFF_MAX;
    ::operator delete(::operator new(bytes));
  } catch (const std::bad_alloc&) {
    std::printf("caught after %d calls of the handler\n", handler_calls);
    return handler_calls == 2 ? 0 : 1;
  }
  return 1;
}
