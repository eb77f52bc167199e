// See hooks.hpp: malloc, free and their relatives, where the fast path did not serve them.
//
//   malloc_slow -> allocate_quickly (pool/heap/medium.hpp): the thread's own blocks
//               -> malloc_slowest -> the pool does not serve -> leave_to: passed on
//                                 -> allocate_slowly (pool/heap/blocks.cpp) -> none: pass_on, to the C library
//   free_slow   -> free_medium_quickly (pool/heap/medium.hpp): a block of the thread's own pages
//               -> free_slowest -> free_any -> deallocate (pool/heap/blocks.cpp), or native_free
//                                           -> neither knows the block: report_misuse
#include "shim/host/hooks/hooks.hpp"

#include <errno.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "pool/base/bit_count.hpp"
#include "pool/base/clock.hpp"
#include "pool/base/page_size.hpp"
#include "pool/heap/blocks.hpp"
#include "pool/heap/medium.hpp"
#include "pool/heap/purge.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/threads.hpp"
#include "shim/host/counters.hpp"
#include "shim/host/hooks/slow_path.hpp"
#include "shim/host/misuse.hpp"
#include "shim/host/out_of_memory.hpp"
#include "shim/host/sites.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/pressure.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern::host {
namespace {

// --- Passed by: the next allocator serves the call, and nothing is counted. The hook ends in a jump to it that leaves
// no frame of Cistern on the stack: LeakSanitizer looks at the caller of malloc to excuse the loader's blocks, and
// memory debuggers name that caller. So no object with a destructor may live across such a call.
bool passes_by() {
  const Serving now = serving();
  return now == Serving::aside || (now == Serving::native && switched_off());
}

// --- Native: counted, and passed on
// The C library gave blocks that the pool had no room for.
constinit std::atomic<bool> pool_was_full{false};

void count_made(void* block) {
  if (in_operator == kMaking) in_operator = 0;
  count_birth(native_usable(block));
}

void count_failed(std::size_t wanted) {
  count_failure();
  record_failed(wanted);
}

// Calls the next allocator and counts its answer. It is also called when the pool's window has no room: the C library
// may have the memory, or sets errno.
template <class... Arguments>
void* pass_on(std::size_t wanted, void* (*function)(Arguments...), Arguments... arguments) {
  void* const block = function(arguments...);
  if (block && pooled()) pool_was_full.store(true, std::memory_order_relaxed);
  if (!counting()) return block;
  if (block) {
    count_made(block);
  } else if (errno == ENOMEM) {
    count_failed(wanted);
    note_out_of_memory(wanted);
  }
  return block;
}

// Serves a call where the pool does not. Hooks call it last too, for the jump that passes_by() needs.
template <class... Arguments>
[[gnu::noinline]] void* leave_to(std::size_t wanted, void* (*function)(Arguments...), Arguments... arguments) {
  if (passes_by()) return function(arguments...);
  InsideSlowPath inside;
  return pass_on(wanted, function, arguments...);
}

// A resized block is not a new one, moved or not: only its bytes change. realloc(p, 0) is a free if the C library makes
// it one.
void* native_realloc(void* block, std::size_t bytes) {
  if (!counting()) return native().realloc(block, bytes);
  const std::size_t before = native_usable(block);
  void* moved = native().realloc(block, bytes);
  if (moved) {
    count_resize(before, native_usable(moved));
  } else if (bytes == 0) {
    count_death(before);
  } else {
    count_failed(bytes);
    note_out_of_memory(bytes);
  }
  return moved;
}

// The free is counted before the block is gone: another thread may get the same block immediately.
void native_free(void* block) {
  if (counting() && giving_back(block) != in_operator) count_death(native_usable(block));
  native().free(block);
}

// --- The pool
void* no_memory(std::size_t wanted) {
  errno = ENOMEM;
  if (counting()) count_failed(wanted);
  return nullptr;
}

bool too_large(std::size_t bytes) { return bytes > PTRDIFF_MAX; }

// --- malloc and free. The quick parts are functions of their own: the slow rest needs registers saved.
[[gnu::noinline]] void* malloc_slowest(std::size_t bytes) {
  if (!pooled()) return leave_to(bytes, native().malloc, bytes);
  InsideSlowPath inside;
  if (too_large(bytes)) return no_memory(bytes);
  const int kept_errno = errno;
  if (void* const block = host_pool::allocate_slowly(bytes)) {
    errno = kept_errno;
    return block;
  }
  return pass_on(bytes, native().malloc, bytes);
}

// False: it is no live block. `may_be_native`: whether one that the pool does not know is the C library's.
template <class MayBeNative>
bool free_any(void* block, MayBeNative may_be_native) {
  switch (host_pool::deallocate(block)) {
    case host_pool::Freed::yes:
      return true;
    case host_pool::Freed::foreign:
      if (!may_be_native(block)) return false;
      native_free(block);
      return true;
    default:
      return false;
  }
}

bool native_or_not_pooled(void* block) { return !pooled() || is_native(block); }

// The same for blocks of the C interface: the C library has one only if the pool was full once.
bool given_instead(void* block) {
  return !pooled() || (pool_was_full.load(std::memory_order_relaxed) && is_native(block));
}

[[gnu::noinline]] void free_slowest(void* block) {
  InsideSlowPath inside;
  const int kept_errno = errno;
  if (!free_any(block, native_or_not_pooled)) report_misuse("free", block, __builtin_return_address(0));
  errno = kept_errno;
}

}  // namespace

void* malloc_slow(std::size_t bytes) {
  void* const block = host_pool::allocate_quickly(bytes);
  return block ? block : malloc_slowest(bytes);
}

void free_slow(void* block) {
  if (!host_pool::free_medium_quickly(block) && block) free_slowest(block);
}

bool free_checked(void* block, const char* api) {
  if (!block || host_pool::give(block)) return true;
  InsideSlowPath inside;
  const int kept_errno = errno;
  const bool freed = free_any(block, given_instead);
  if (!freed) say_misuse(api, block);
  errno = kept_errno;
  return freed;
}

bool is_live_block(void* block, const char* api) {
  const bool is_live = host_pool::usable_bytes(block) ? host_pool::is_live(block) : given_instead(block);
  if (!is_live) say_misuse(api, block);
  return is_live;
}

void* hook_calloc(size_t count, size_t bytes) {
  std::size_t total;
  if (!__builtin_mul_overflow(count, bytes, &total)) [[likely]] {
    if (void* const block = host_pool::take(total)) [[likely]]
      return memset(block, 0, total);
  }
  const bool overflows = __builtin_mul_overflow(count, bytes, &total);
  if (!pooled()) return leave_to(overflows ? 0 : total, native().calloc, count, bytes);
  InsideSlowPath inside;
  if (overflows || too_large(total)) return no_memory(overflows ? SIZE_MAX : total);
  const int kept_errno = errno;
  if (void* const block = host_pool::allocate_zeroed(total)) {
    errno = kept_errno;
    return block;
  }
  return pass_on(total, native().calloc, count, bytes);
}

namespace {

[[gnu::noinline]] void* realloc_slowly(void* block, size_t bytes, const void* caller) {
  if (!block) return hook_malloc(bytes);
  const std::size_t usable = host_pool::usable_bytes(block);
  if (!usable && passes_by()) return native().realloc(block, bytes);
  InsideSlowPath inside;
  if (!usable) {
    if (!pooled() || is_native(block)) return native_realloc(block, bytes);
    report_misuse("realloc", block, caller);
    return nullptr;
  }
  if (!host_pool::is_live(block)) {
    report_misuse("realloc", block, caller);
    return nullptr;
  }
  if (bytes == 0) {
    hook_free(block);
    return nullptr;
  }
  if (too_large(bytes)) return no_memory(bytes);
  const int kept_errno = errno;
  void* const moved = pooled() ? host_pool::reallocate(block, bytes) : nullptr;
  if (moved) {
    errno = kept_errno;
    return moved;
  }
  void* const elsewhere = pass_on(bytes, native().malloc, bytes);
  if (!elsewhere) return nullptr;
  memcpy(elsewhere, block, usable < bytes ? usable : bytes);
  hook_free(block);
  return elsewhere;
}

}  // namespace

void* hook_realloc(void* block, size_t bytes) {
  if (block && host_pool::keeps_place(block, bytes)) return block;
  return realloc_slowly(block, bytes, __builtin_return_address(0));
}

namespace {

// Some names stand for other names in the C library, which may call Cistern, or an allocator behind it that defines
// those. If the pool does not serve, such a call goes on by its own name. A block of the pool stays with the pool.
template <class Function>
bool goes_on(Function* next, const void* block = nullptr) {
  return next && !pooled() && !host_pool::usable_bytes(block);
}

}  // namespace

void* hook_reallocarray(void* block, size_t count, size_t bytes) {
  const auto next = native().reallocarray;
  if (serving() == Serving::aside && goes_on(next, block)) return next(block, count, bytes);
  std::size_t total = 0;
  if (!__builtin_mul_overflow(count, bytes, &total)) return hook_realloc(block, total);
  return no_memory(SIZE_MAX);
}

// --- Aligned
namespace {

// The block for every aligned call. `alignment`: a power of two.
void* aligned(std::size_t alignment, std::size_t bytes) {
  if (bytes > PTRDIFF_MAX - std::min<std::size_t>(alignment, PTRDIFF_MAX)) return no_memory(bytes);
  const int kept_errno = errno;
  if (void* const block = host_pool::allocate_aligned(alignment, bytes)) {
    errno = kept_errno;
    return block;
  }
  return pass_on(bytes, native().memalign, alignment, bytes);
}

// aligned_alloc of glibc refuses alignments that are not a power of two, since 2.38.
bool c_library_refuses_odd_alignments() {
  char* end;
  const unsigned long major = strtoul(gnu_get_libc_version(), &end, 10);
  return major > 2 || strtoul(end + 1, nullptr, 10) >= 38;
}

}  // namespace

void* hook_memalign(size_t alignment, size_t bytes) {
  if (!pooled()) return leave_to(bytes, native().memalign, alignment, bytes);
  InsideSlowPath inside;
  // As the C library: rounded up to a power of two, as far as there is one.
  if (alignment > SIZE_MAX / 2 + 1) {
    errno = EINVAL;
    return nullptr;
  }
  return aligned(std::bit_ceil(alignment), bytes);
}

void* hook_aligned_alloc(size_t alignment, size_t bytes) {
  if (!pooled()) return leave_to(bytes, native().aligned_alloc, alignment, bytes);
  if (!is_power_of_two(alignment) && c_library_refuses_odd_alignments()) {
    errno = EINVAL;
    return nullptr;
  }
  return hook_memalign(alignment, bytes);
}

// The result is the error. As in the C library, errno is set only for lack of memory.
int hook_posix_memalign(void** block, size_t alignment, size_t bytes) {
  const bool served = pooled();
  if (!served && passes_by()) return native().posix_memalign(block, alignment, bytes);
  InsideSlowPath inside;
  if (!served) {
    const int result = native().posix_memalign(block, alignment, bytes);
    if (!counting()) return result;
    if (result == 0) count_made(*block);
    if (result == ENOMEM) {
      count_failed(bytes);
      note_out_of_memory(bytes);
    }
    return result;
  }
  if (alignment % sizeof(void*) != 0 || !is_power_of_two(alignment)) return EINVAL;
  void* const given = aligned(alignment, bytes);
  if (!given) return ENOMEM;
  *block = given;
  return 0;
}

void* hook_valloc(size_t bytes) {
  if (!pooled()) return leave_to(bytes, native().valloc, bytes);
  InsideSlowPath inside;
  return aligned(page_bytes(), bytes);
}

void* hook_pvalloc(size_t bytes) {
  // Another allocator may lack pvalloc; then the C library's serves, and the allocator cannot tell the block's size.
  if (!pooled()) return native_is_c_library() ? leave_to(bytes, native().pvalloc, bytes) : native().pvalloc(bytes);
  InsideSlowPath inside;
  const std::size_t page = page_bytes();
  std::size_t whole;
  if (__builtin_add_overflow(bytes, page - 1, &whole)) return no_memory(bytes);
  return aligned(page, whole & ~(page - 1));
}

// --- Other names of the same functions
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

// --- The start
void prepare_pool() {
  say_who_serves();
  prepare_native();
  if (pooled()) {
    note_program_break();
    host_pool::look_at_limits();
    host_pool::prepare_thread_ends();
    start_sites();
    constexpr std::uint64_t kLongestNs = 10'000'000'000;  // free memory of the host's is no one else's while it is kept
    host_pool::give_back_after(std::min(options().trim_interval, kLongestNs));
    host_pool::ask_when_scarce([] { return memory_pressure.is_near_limit(coarse_monotonic_ns()); });
  } else {
    host_pool::end_heap();
  }
}

bool inside_allocator() { return slow_depth > 0 || uncounted_here(); }

}  // namespace cistern::host
