// See host_hooks.hpp. The malloc family is counted here. Operator new and delete go to the C++ runtime's, which call
// the malloc family: its new_handler runs and its bad_alloc is thrown, through our frames, as without us. So nothing
// here may be noexcept, and no scope guard may be open around an operator.
#include "shim/core/host_hooks.hpp"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>

#include "shim/core/host_counters.hpp"
#include "shim/core/host_native.hpp"

namespace cistern::host {
namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local int native_depth = 0;

class InsideNative {
 public:
  InsideNative() { native_depth = native_depth + 1; }
  ~InsideNative() { native_depth = native_depth - 1; }
};

std::size_t usable_bytes(void* block) { return native().malloc_usable_size(block); }

// What an allocating call returned, noted.
void* born(void* block) {
  if (!counting()) return block;
  if (block) {
    count_birth(usable_bytes(block));
  } else if (errno == ENOMEM) {
    count_failure();
  }
  return block;
}

template <class... Arguments>
void* pass_on(void* (*function)(Arguments...), Arguments... arguments) {
  InsideNative inside;
  return born(function(arguments...));
}

[[noreturn]] void die_without_runtime() {
  constexpr char kLine[] = "cistern: operator new failed and no C++ runtime was found to say so\n";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
  abort();
}

struct NewRequest {
  std::size_t bytes;
  std::size_t alignment;
  bool throws;
  const char* name;
};

// Without a C++ runtime in the global order (a C program with C++ plugins) new is malloc until it fails.
template <class... Arguments>
void* operator_new(void* (*runtime)(Arguments...), NewRequest request, Arguments... arguments) {
  if (runtime) [[likely]]
    return runtime(arguments...);
  const std::size_t bytes = request.bytes ? request.bytes : 1;
  void* block = request.alignment ? hook_memalign(request.alignment, bytes) : hook_malloc(bytes);
  if (block) return block;
  if (void* late = late_operator(request.name)) return reinterpret_cast<void* (*)(Arguments...)>(late)(arguments...);
  if (request.throws) die_without_runtime();
  return nullptr;
}

template <class... Arguments>
void operator_delete(void (*runtime)(void*, Arguments...), void* block, Arguments... arguments) {
  if (runtime) [[likely]]
    return runtime(block, arguments...);
  hook_free(block);
}

}  // namespace

void prepare_operators() { native_operators(); }

bool inside_allocator() { return native_depth > 0 || uncounted_here(); }

void* hook_malloc(size_t bytes) { return pass_on(native().malloc, bytes); }
void* hook_calloc(size_t count, size_t bytes) { return pass_on(native().calloc, count, bytes); }
void* hook_memalign(size_t alignment, size_t bytes) { return pass_on(native().memalign, alignment, bytes); }
void* hook_aligned_alloc(size_t alignment, size_t bytes) { return pass_on(native().aligned_alloc, alignment, bytes); }
void* hook_valloc(size_t bytes) { return pass_on(native().valloc, bytes); }
void* hook_pvalloc(size_t bytes) { return pass_on(native().pvalloc, bytes); }

// errno is left alone: the result is the error.
int hook_posix_memalign(void** block, size_t alignment, size_t bytes) {
  InsideNative inside;
  const int result = native().posix_memalign(block, alignment, bytes);
  if (!counting()) return result;
  if (result == 0) count_birth(usable_bytes(*block));
  if (result == ENOMEM) count_failure();
  return result;
}

// A block that lives on, moved or not, is neither born nor dead: only its bytes change. realloc(NULL, n) is an
// allocation, and realloc(p, 0) a free where the C library makes it one.
void* hook_realloc(void* block, size_t bytes) {
  if (!block) return pass_on(native().realloc, block, bytes);
  InsideNative inside;
  if (!counting()) return native().realloc(block, bytes);
  const std::size_t before = usable_bytes(block);
  void* moved = native().realloc(block, bytes);
  if (moved) {
    count_resize(before, usable_bytes(moved));
  } else if (bytes == 0) {
    count_death(before);
  } else {
    count_failure();
  }
  return moved;
}

void* hook_reallocarray(void* block, size_t count, size_t bytes) {
  std::size_t total = 0;
  if (!__builtin_mul_overflow(count, bytes, &total)) return hook_realloc(block, total);
  errno = ENOMEM;
  if (counting()) count_failure();
  return nullptr;
}

// Counted before the block is gone: another thread may get the same one at once.
void hook_free(void* block) {
  if (!block) return;
  const int kept_errno = errno;
  InsideNative inside;
  if (counting()) count_death(usable_bytes(block));
  native().free(block);
  errno = kept_errno;
}

void hook_cfree(void* block) { hook_free(block); }

#define RUNTIME_NEW(name, alignment, throws, ...) \
  return operator_new(native_operators().name, {bytes, alignment, throws, #name}, __VA_ARGS__)

void* hook__Znwm(size_t bytes) { RUNTIME_NEW(_Znwm, 0, true, bytes); }
void* hook__Znam(size_t bytes) { RUNTIME_NEW(_Znam, 0, true, bytes); }
void* hook__ZnwmRKSt9nothrow_t(size_t bytes, const void* nothrow) {
  RUNTIME_NEW(_ZnwmRKSt9nothrow_t, 0, false, bytes, nothrow);
}
void* hook__ZnamRKSt9nothrow_t(size_t bytes, const void* nothrow) {
  RUNTIME_NEW(_ZnamRKSt9nothrow_t, 0, false, bytes, nothrow);
}
void* hook__ZnwmSt11align_val_t(size_t bytes, size_t alignment) {
  RUNTIME_NEW(_ZnwmSt11align_val_t, alignment, true, bytes, alignment);
}
void* hook__ZnamSt11align_val_t(size_t bytes, size_t alignment) {
  RUNTIME_NEW(_ZnamSt11align_val_t, alignment, true, bytes, alignment);
}
void* hook__ZnwmSt11align_val_tRKSt9nothrow_t(size_t bytes, size_t alignment, const void* nothrow) {
  RUNTIME_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, alignment, false, bytes, alignment, nothrow);
}
void* hook__ZnamSt11align_val_tRKSt9nothrow_t(size_t bytes, size_t alignment, const void* nothrow) {
  RUNTIME_NEW(_ZnamSt11align_val_tRKSt9nothrow_t, alignment, false, bytes, alignment, nothrow);
}
#undef RUNTIME_NEW

#define RUNTIME_DELETE(name, ...) operator_delete(native_operators().name, __VA_ARGS__)

void hook__ZdlPv(void* block) { RUNTIME_DELETE(_ZdlPv, block); }
void hook__ZdaPv(void* block) { RUNTIME_DELETE(_ZdaPv, block); }
void hook__ZdlPvm(void* block, size_t bytes) { RUNTIME_DELETE(_ZdlPvm, block, bytes); }
void hook__ZdaPvm(void* block, size_t bytes) { RUNTIME_DELETE(_ZdaPvm, block, bytes); }
void hook__ZdlPvRKSt9nothrow_t(void* block, const void* nothrow) {
  RUNTIME_DELETE(_ZdlPvRKSt9nothrow_t, block, nothrow);
}
void hook__ZdaPvRKSt9nothrow_t(void* block, const void* nothrow) {
  RUNTIME_DELETE(_ZdaPvRKSt9nothrow_t, block, nothrow);
}
void hook__ZdlPvSt11align_val_t(void* block, size_t alignment) {
  RUNTIME_DELETE(_ZdlPvSt11align_val_t, block, alignment);
}
void hook__ZdaPvSt11align_val_t(void* block, size_t alignment) {
  RUNTIME_DELETE(_ZdaPvSt11align_val_t, block, alignment);
}
void hook__ZdlPvmSt11align_val_t(void* block, size_t bytes, size_t alignment) {
  RUNTIME_DELETE(_ZdlPvmSt11align_val_t, block, bytes, alignment);
}
void hook__ZdaPvmSt11align_val_t(void* block, size_t bytes, size_t alignment) {
  RUNTIME_DELETE(_ZdaPvmSt11align_val_t, block, bytes, alignment);
}
void hook__ZdlPvSt11align_val_tRKSt9nothrow_t(void* block, size_t alignment, const void* nothrow) {
  RUNTIME_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, block, alignment, nothrow);
}
void hook__ZdaPvSt11align_val_tRKSt9nothrow_t(void* block, size_t alignment, const void* nothrow) {
  RUNTIME_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, block, alignment, nothrow);
}
#undef RUNTIME_DELETE

}  // namespace cistern::host
