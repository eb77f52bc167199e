// Operators new that must fail, in all their forms: the program's own handler runs and its own bad_alloc is caught.
// A handler that makes room (here: by lifting a limit) lets the same new succeed.
#include <stdint.h>
#include <sys/resource.h>

#include <cstdio>
#include <new>

namespace {

struct Local {
  ~Local() { std::puts("unwound"); }
};

int handler_calls = 0;

void give_up_at_the_second_call() {
  if (++handler_calls == 2) std::set_new_handler(nullptr);
}

void lift_the_limit() {
  ++handler_calls;
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_AS, &limit);
}

volatile std::size_t huge = PTRDIFF_MAX;

template <class Allocate>
void expect_bad_alloc(const char* what, Allocate allocate) {
  handler_calls = 0;
  std::set_new_handler(give_up_at_the_second_call);
  try {
    Local local;
    void* block = allocate();
    std::printf("%s: returned %s after %d calls of the handler\n", what, block ? "a block" : "null", handler_calls);
  } catch (const std::bad_alloc& failure) {
    std::printf("%s: caught %s after %d calls of the handler\n", what, failure.what(), handler_calls);
  }
}

void expect_success_after_making_room() {
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = 512 << 20;
  setrlimit(RLIMIT_AS, &limit);
  handler_calls = 0;
  std::set_new_handler(lift_the_limit);
  volatile std::size_t bytes = 600 << 20;
  void* block = ::operator new(bytes);
  std::printf("%s after %d calls of the handler\n", block ? "served" : "null", handler_calls);
  ::operator delete(block);
}

}  // namespace

int main() {
  expect_bad_alloc("new", [] { return ::operator new(huge); });
  expect_bad_alloc("new[]", [] { return ::operator new[](huge); });
  expect_bad_alloc("aligned new", [] { return ::operator new(huge, std::align_val_t(64)); });
  expect_bad_alloc("aligned new[]", [] { return ::operator new[](huge, std::align_val_t(64)); });
  expect_bad_alloc("nothrow new", [] { return ::operator new(huge, std::nothrow); });
  expect_bad_alloc("nothrow new[]", [] { return ::operator new[](huge, std::nothrow); });
  expect_bad_alloc("char array", [] { return static_cast<void*>(new char[huge]); });
  expect_success_after_making_room();
  return 0;
}
