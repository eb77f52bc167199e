// What the programs that do random steps share: the seed, and failures that name it and the step.
#pragma once
#include <errno.h>

#include "program.hpp"
#include "tests/support/random.hpp"

inline unsigned long run_seed = cistern::test::new_seed();
inline std::atomic<unsigned long> steps_done{0};

[[noreturn, gnu::format(printf, 1, 2)]] inline void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s: seed %lu, step %lu: ", program_invocation_short_name, run_seed, steps_done.load());
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  _exit(1);
}

#define CHECK(call)                                                                            \
  do {                                                                                         \
    const cudaError_t code = call;                                                             \
    if (code != cudaSuccess) fail("line %d: %s: %s", __LINE__, #call, cudaGetErrorName(code)); \
  } while (0)
