// See host_hooks.hpp. Operator new and delete are the C++ runtime's where they were replaced or fail: those call the
// malloc family, so the program's new_handler runs and its bad_alloc is thrown, through our frames, as without us. So
// nothing here may be noexcept, and no scope guard may be open around an operator.
#include "shim/core/host_hooks.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "pool/host_account.hpp"
#include "pool/host_blocks.hpp"
#include "pool/host_heap.hpp"
#include "pool/host_region.hpp"
#include "pool/host_threads.hpp"
#include "shim/core/core.hpp"
#include "shim/core/host_c_library.hpp"
#include "shim/core/host_counters.hpp"
#include "shim/core/host_misuse.hpp"
#include "shim/core/host_native.hpp"
#include "shim/core/host_serving.hpp"
#include "shim/core/host_sites.hpp"
#include "shim/core/lookup.hpp"

namespace cistern::host {
namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local int slow_depth = 0;

class InsideSlowPath {
 public:
  InsideSlowPath() { slow_depth = slow_depth + 1; }
  ~InsideSlowPath() { slow_depth = slow_depth - 1; }
};

// --- Native: counted, and passed on
std::size_t native_usable(void* block) { return native().malloc_usable_size(block); }

// What an allocating call returned, noted. Asked for what the pool has no room for in its window, too: the C library
// may have it, or says why not.
void* born(void* block) {
  if (!counting()) return block;
  if (block) {
    count_birth(native_usable(block));
  } else if (errno == ENOMEM) {
    count_failure();
  }
  return block;
}

template <class... Arguments>
void* pass_on(void* (*function)(Arguments...), Arguments... arguments) {
  return born(function(arguments...));
}

// A block that lives on, moved or not, is neither born nor dead: only its bytes change. realloc(p, 0) is a free where
// the C library makes it one.
void* native_realloc(void* block, std::size_t bytes) {
  if (!counting()) return native().realloc(block, bytes);
  const std::size_t before = native_usable(block);
  void* moved = native().realloc(block, bytes);
  if (moved) {
    count_resize(before, native_usable(moved));
  } else if (bytes == 0) {
    count_death(before);
  } else {
    count_failure();
  }
  return moved;
}

// Counted before the block is gone: another thread may get the same one at once.
void native_free(void* block) {
  if (counting()) count_death(native_usable(block));
  native().free(block);
}

// --- The pool
void* no_memory() {
  errno = ENOMEM;
  if (counting()) count_failure();
  return nullptr;
}

bool too_large(std::size_t bytes) { return bytes > PTRDIFF_MAX; }

std::size_t system_page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// A pointer that no block of the pool starts at; the C library may know it (a plugin opened with RTLD_DEEPBIND got it
// there), or nobody.
bool is_native(void* block) { return !native_is_c_library() || c_library_may_own(block); }

// Aligned blocks of every entry point. `alignment`: a power of two.
void* aligned(std::size_t alignment, std::size_t bytes) {
  if (bytes > PTRDIFF_MAX - std::min<std::size_t>(alignment, PTRDIFF_MAX)) return no_memory();
  const int kept_errno = errno;
  if (void* const block = host_pool::allocate_aligned(alignment, bytes)) {
    errno = kept_errno;
    return block;
  }
  return pass_on(native().memalign, alignment, bytes);
}

// Of aligned_alloc: since 2.38.
bool c_library_refuses_odd_alignments() {
  char* end;
  const unsigned long major = strtoul(gnu_get_libc_version(), &end, 10);
  return major > 2 || strtoul(end + 1, nullptr, 10) >= 38;
}

bool pooled() { return pool_serves(); }

// Names that lead to other names in the C library, which perhaps calls us or an allocator that stands on them: where
// the pool does not serve, they go on as they are. A block says for itself whose it is.
template <class Function>
bool goes_on(Function* next, const void* block = nullptr) {
  return next && !pooled() && !host_pool::usable_bytes(block);
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

bool in_cxx_runtime(const void* function) {
  return lies_in_library(function, "libstdc++.so") || lies_in_library(function, "libc++.so") ||
         lies_in_library(function, "libc++abi.so");
}

// All of them are the runtime's, and nobody in front of us (the program itself) defines one.
bool operators_are_the_runtimes() {
  const Native& next = native_operators();
  bool all = true;
#define HOST_CALL(action, result, name, parameters, arguments) \
  if (is_operator(#name) && next.name && !in_cxx_runtime(reinterpret_cast<const void*>(next.name))) all = false;
#include "shim/symbols.def"
  return all && !defined_before_us(kOperatorNames);
}

}  // namespace

void prepare_operators() {
  operators_served.store(pooled() && operators_are_the_runtimes(), std::memory_order_relaxed);
}

void prepare_pool() {
  say_who_serves();
  if (pooled()) {
    note_program_break();
    host_pool::prepare_thread_ends();
    start_sites();
    host_pool::give_back_after(options().trim_interval);
  } else {
    host_pool::end_heap();
  }
}

bool inside_allocator() { return slow_depth > 0 || uncounted_here(); }

// --- malloc and free. What the pool does quickly comes in functions of its own: the rest needs registers saved.
namespace {

[[gnu::noinline]] void* malloc_slowest(std::size_t bytes) {
  InsideSlowPath inside;
  if (!pooled()) return pass_on(native().malloc, bytes);
  if (too_large(bytes)) return no_memory();
  const int kept_errno = errno;
  if (void* const block = host_pool::allocate(bytes)) {
    errno = kept_errno;
    return block;
  }
  return pass_on(native().malloc, bytes);
}

[[gnu::noinline]] void free_slowest(void* block) {
  InsideSlowPath inside;
  const int kept_errno = errno;
  switch (host_pool::deallocate(block)) {
    case host_pool::Freed::yes:
      break;
    case host_pool::Freed::foreign:
      if (!pooled() || is_native(block)) {
        native_free(block);
        break;
      }
      [[fallthrough]];
    case host_pool::Freed::invalid:
    case host_pool::Freed::double_free:
      report_misuse("free", block, __builtin_return_address(0));
      break;
  }
  errno = kept_errno;
}

}  // namespace

void* malloc_slow(std::size_t bytes) {
  void* const block = host_pool::allocate_quickly(bytes);
  return block ? block : malloc_slowest(bytes);
}

void free_slow(void* block) {
  if (block && !host_pool::deallocate_quickly(block)) free_slowest(block);
}

void* hook_calloc(size_t count, size_t bytes) {
  std::size_t total;
  if (!__builtin_mul_overflow(count, bytes, &total)) [[likely]] {
    if (void* const block = host_pool::take(total)) [[likely]]
      return memset(block, 0, total);
  }
  InsideSlowPath inside;
  if (!pooled()) return pass_on(native().calloc, count, bytes);
  if (__builtin_mul_overflow(count, bytes, &total) || too_large(total)) return no_memory();
  const int kept_errno = errno;
  if (void* const block = host_pool::allocate_zeroed(total)) {
    errno = kept_errno;
    return block;
  }
  return pass_on(native().calloc, count, bytes);
}

void* hook_realloc(void* block, size_t bytes) {
  if (!block) return hook_malloc(bytes);
  const std::size_t usable = host_pool::usable_bytes(block);
  InsideSlowPath inside;
  if (!usable) {
    if (!pooled() || is_native(block)) return native_realloc(block, bytes);
    report_misuse("realloc", block, __builtin_return_address(0));
    return nullptr;
  }
  if (!host_pool::is_live(block)) {
    report_misuse("realloc", block, __builtin_return_address(0));
    return nullptr;
  }
  if (bytes == 0) {
    hook_free(block);
    return nullptr;
  }
  if (too_large(bytes)) return no_memory();
  const int kept_errno = errno;
  void* const moved = pooled() ? host_pool::reallocate(block, bytes) : nullptr;
  if (moved) {
    errno = kept_errno;
    return moved;
  }
  void* const elsewhere = pass_on(native().malloc, bytes);
  if (!elsewhere) return nullptr;
  memcpy(elsewhere, block, usable < bytes ? usable : bytes);
  hook_free(block);
  return elsewhere;
}

void* hook_reallocarray(void* block, size_t count, size_t bytes) {
  const auto next = native().reallocarray;
  if (serving() == Serving::aside && goes_on(next, block)) return next(block, count, bytes);
  std::size_t total = 0;
  if (!__builtin_mul_overflow(count, bytes, &total)) return hook_realloc(block, total);
  return no_memory();
}

// --- Aligned
void* hook_memalign(size_t alignment, size_t bytes) {
  InsideSlowPath inside;
  if (!pooled()) return pass_on(native().memalign, alignment, bytes);
  // As the C library: rounded up to a power of two, as far as there is one.
  if (alignment > SIZE_MAX / 2 + 1) {
    errno = EINVAL;
    return nullptr;
  }
  return aligned(std::bit_ceil(alignment), bytes);
}

void* hook_aligned_alloc(size_t alignment, size_t bytes) {
  if (!pooled()) {
    InsideSlowPath inside;
    return pass_on(native().aligned_alloc, alignment, bytes);
  }
  if (!std::has_single_bit(alignment) && c_library_refuses_odd_alignments()) {
    errno = EINVAL;
    return nullptr;
  }
  return hook_memalign(alignment, bytes);
}

// The result is the error; as the C library's, it sets errno only where there is no memory.
int hook_posix_memalign(void** block, size_t alignment, size_t bytes) {
  InsideSlowPath inside;
  if (!pooled()) {
    const int result = native().posix_memalign(block, alignment, bytes);
    if (!counting()) return result;
    if (result == 0) count_birth(native_usable(*block));
    if (result == ENOMEM) count_failure();
    return result;
  }
  if (alignment % sizeof(void*) != 0 || !std::has_single_bit(alignment)) return EINVAL;
  void* const given = aligned(alignment, bytes);
  if (!given) return ENOMEM;
  *block = given;
  return 0;
}

void* hook_valloc(size_t bytes) {
  InsideSlowPath inside;
  if (!pooled()) return pass_on(native().valloc, bytes);
  return aligned(system_page(), bytes);
}

void* hook_pvalloc(size_t bytes) {
  InsideSlowPath inside;
  // Not every allocator has it: the block may be one whose size it can't tell.
  if (!pooled()) return native_is_c_library() ? pass_on(native().pvalloc, bytes) : native().pvalloc(bytes);
  const std::size_t page = system_page();
  std::size_t whole;
  if (__builtin_add_overflow(bytes, page - 1, &whole)) return no_memory();
  return aligned(page, whole & ~(page - 1));
}

// --- Other names of the same
void hook_cfree(void* block) { hook_free(block); }
void hook_free_sized(void* block, size_t) { hook_free(block); }
void hook_free_aligned_sized(void* block, size_t, size_t) { hook_free(block); }
#define OTHER_NAME(result, name, parameters, arguments, hook, ...)                     \
  result hook_##name parameters {                                                      \
    const auto next = native().name;                                                   \
    return goes_on(next __VA_OPT__(, ) __VA_ARGS__) ? next arguments : hook arguments; \
  }
OTHER_NAME(void*, __libc_malloc, (size_t bytes), (bytes), hook_malloc)
OTHER_NAME(void, __libc_free, (void* block), (block), hook_free, block)
OTHER_NAME(void*, __libc_calloc, (size_t count, size_t bytes), (count, bytes), hook_calloc)
OTHER_NAME(void*, __libc_realloc, (void* block, size_t bytes), (block, bytes), hook_realloc, block)
OTHER_NAME(void*, __libc_memalign, (size_t alignment, size_t bytes), (alignment, bytes), hook_memalign)
OTHER_NAME(void*, __libc_valloc, (size_t bytes), (bytes), hook_valloc)
OTHER_NAME(void*, __libc_pvalloc, (size_t bytes), (bytes), hook_pvalloc)
OTHER_NAME(int, __posix_memalign, (void** block, size_t alignment, size_t bytes), (block, alignment, bytes),
           hook_posix_memalign)
#undef OTHER_NAME

// --- Questions
size_t hook_malloc_usable_size(void* block) {
  if (!block) return 0;
  if (const std::size_t usable = host_pool::usable_bytes(block)) return usable;
  return !pooled() || is_native(block) ? native_usable(block) : 0;
}

int hook_malloc_trim(size_t keep_bytes) {
  InsideSlowPath inside;
  if (!pooled()) return native().malloc_trim(keep_bytes);
  const int kept_errno = errno;
  const bool given_back = host_pool::trim(keep_bytes) > 0;
  errno = kept_errno;
  return given_back;
}

// The C library's tunables say nothing to the pool and are taken all the same, as it takes them. What blocks hold is
// for the program to see: that the C library does itself.
int hook_mallopt(int parameter, int value) {
  if (parameter == M_PERTURB && value != 0 && native_is_c_library()) leave_to_c_library();
  return native().mallopt(parameter, value);
}

struct mallinfo2 hook_mallinfo2() {
  if (!pooled()) return native().mallinfo2();
  const host_pool::Account account = host_pool::account();
  const host_pool::RegionFigures region = host_pool::region_figures();
  struct mallinfo2 info {};
  info.arena = region.mapped_bytes;
  info.uordblks = account.live_bytes();
  info.fordblks = region.mapped_bytes - account.live_bytes();
  info.keepcost = region.dirty_bytes;
  info.usmblks = region.peak_in_use_bytes;
  return info;
}

struct mallinfo hook_mallinfo() {
  if (!pooled()) return native().mallinfo();
  const struct mallinfo2 wide = hook_mallinfo2();
  struct mallinfo info {};
  info.arena = static_cast<int>(wide.arena);
  info.uordblks = static_cast<int>(wide.uordblks);
  info.fordblks = static_cast<int>(wide.fordblks);
  info.keepcost = static_cast<int>(wide.keepcost);
  info.usmblks = static_cast<int>(wide.usmblks);
  return info;
}

int hook_malloc_info(int options, FILE* file) {
  if (!pooled()) return native().malloc_info(options, file);
  if (options != 0) return EINVAL;
  const host_pool::Account account = host_pool::account();
  const host_pool::RegionFigures region = host_pool::region_figures();
  fputs("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n", file);
  for (unsigned id = 0; id < host_pool::kClasses; ++id) {
    const host_pool::ClassAccount& one = account.classes[id];
    if (!one.page_bytes) continue;
    const std::size_t to = host_pool::class_bytes(id), from = id ? host_pool::class_bytes(id - 1) + 1 : 0;
    fprintf(file, "  <size from=\"%zu\" to=\"%zu\" total=\"%zu\" count=\"%zu\"/>\n", from, to,
            static_cast<std::size_t>(one.free_blocks) * to, static_cast<std::size_t>(one.free_blocks));
  }
  fprintf(file,
          "</sizes>\n<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n<system type=\"current\" size=\"%zu\"/>\n"
          "<system type=\"max\" size=\"%zu\"/>\n</heap>\n</malloc>\n",
          static_cast<std::size_t>(account.live_blocks()), static_cast<std::size_t>(account.live_bytes()),
          static_cast<std::size_t>(region.mapped_bytes), static_cast<std::size_t>(region.mapped_bytes));
  return 0;
}

void hook_malloc_stats() {
  if (!pooled()) return native().malloc_stats();
  const host_pool::Account account = host_pool::account();
  fprintf(stderr, "system bytes     = %10zu\nin use bytes     = %10zu\n",
          static_cast<std::size_t>(host_pool::region_figures().mapped_bytes),
          static_cast<std::size_t>(account.live_bytes()));
}

// --- Operators
#define RUNTIME_NEW(name, alignment, throws, ...) \
  return operator_new(native_operators().name, {bytes, alignment, throws, #name}, __VA_ARGS__)

void* new_slow(size_t bytes) {
  if (operators_served.load(std::memory_order_relaxed))
    if (void* const block = hook_malloc(bytes)) return block;
  RUNTIME_NEW(_Znwm, 0, true, bytes);
}
void* new_array_slow(size_t bytes) {
  if (operators_served.load(std::memory_order_relaxed))
    if (void* const block = hook_malloc(bytes)) return block;
  RUNTIME_NEW(_Znam, 0, true, bytes);
}
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

// What the runtime's would do is free the block; only replaced ones do something else.
#define RUNTIME_DELETE(name, ...)                                                \
  if (operators_served.load(std::memory_order_relaxed)) return free_slow(block); \
  operator_delete(native_operators().name, __VA_ARGS__)

void delete_slow(void* block) { RUNTIME_DELETE(_ZdlPv, block); }
void delete_array_slow(void* block) { RUNTIME_DELETE(_ZdaPv, block); }
void delete_sized_slow(void* block, size_t bytes) { RUNTIME_DELETE(_ZdlPvm, block, bytes); }
void delete_array_sized_slow(void* block, size_t bytes) { RUNTIME_DELETE(_ZdaPvm, block, bytes); }
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
