// Loses two blocks: one at the end of a chain of calls of which the inner ones are inlined, whose lines a test reads
// here, and one by a function that is called as one of Rust's is, by another such. Built with debug information of
// several forms.
#include <cstdlib>

[[gnu::always_inline]] static inline void* inner(std::size_t bytes) {
  return std::malloc(bytes);  // inner
}

[[gnu::always_inline]] static inline void* middle(std::size_t bytes) {
  void* const block = inner(bytes);  // middle
  static_cast<char*>(block)[0] = 1;
  return block;
}

namespace {
struct Deep {
  [[gnu::noinline]] static void* go(std::size_t bytes) {
    void* const block = middle(bytes);  // go
    asm volatile("" ::"r"(block));
    return block;
  }
};
}  // namespace

static void* volatile latest;

[[gnu::noinline]] static void outer() {
  latest = Deep::go(700'000);  // outer
  latest = nullptr;
}

[[gnu::noinline]] void of_rust(std::size_t bytes) asm("_RNvCs4T4zK9Otvt5_5names8leak_box");
void of_rust(std::size_t bytes) {
  latest = inner(bytes);  // of_rust
  latest = nullptr;
}

// A function that reports leave out where it is only one of those that lead to the program's.
[[gnu::noinline]] void in_thread() asm("_ZN3std6thread5spawn17h0123456789abcdefE");
void in_thread() {
  of_rust(800'000);
  asm volatile("");
}

int main() {
  outer();  // main
  in_thread();
  return 0;
}
