// What is done to each call of the malloc family and of operator new and delete: served from the host pool or, where
// that is off or the program brings an allocator of its own, counted and passed on. The calls that programs make most
// are here, in line: the pool's fast path first, everything else out of line.
//
// Room: host memory: one function per call.
// May include: pool/base, pool/heap, shim/process, shim/host.
#pragma once
#include <malloc.h>
#include <stdio.h>

#include <atomic>
#include <cstddef>

#include "pool/heap/fast_path.hpp"

namespace cistern::host {

#define HOST_CALL(action, result, name, parameters, arguments) result hook_##name parameters;
#include "shim/symbols/host.def"

void* malloc_slow(std::size_t bytes);
void free_slow(void* block);
// As free and realloc, of calls whose result says what is no live block, in a line that names `api`: the process goes
// on. Resized to no bytes, a block stays one.
bool free_checked(void* block, const char* api);
bool is_live_block(void* block, const char* api);
// Whether operators new and delete are the C++ runtime's own, so that serving them is the same as letting it call
// malloc. Otherwise they go to who replaced them.
inline constinit std::atomic<bool> operators_served{false};

inline void* hook_malloc(std::size_t bytes) {
  if (void* const block = host_pool::take(bytes)) [[likely]]
    return block;
  return malloc_slow(bytes);
}

inline void hook_free(void* block) {
  if (host_pool::give(block)) [[likely]]
    return;
  free_slow(block);
}

inline void* take_for_new(std::size_t bytes, std::size_t alignment) {
  return !alignment && operators_served.load(std::memory_order_relaxed) ? host_pool::take(bytes) : nullptr;
}

inline bool give_for_delete(void* block) {
  return operators_served.load(std::memory_order_relaxed) && host_pool::give(block);
}

#define HOST_NEW(name, alignment, throws, parameters, arguments)       \
  void* slow_##name parameters;                                        \
  inline void* hook_##name parameters {                                \
    if (void* const block = take_for_new(bytes, alignment)) [[likely]] \
      return block;                                                    \
    return slow_##name arguments;                                      \
  }
#define HOST_DELETE(name, parameters, arguments) \
  void slow_##name parameters;                   \
  inline void hook_##name parameters {           \
    if (!give_for_delete(block)) [[unlikely]]    \
      slow_##name arguments;                     \
  }
#include "shim/symbols/host.def"

// Finds the C++ runtime's operators while the process is young: the look-up takes the loader's lock.
void prepare_operators();
// Decides who serves, as far as that is still open, and prepares the ends of threads. Called once, early.
void prepare_pool();

// Whether this thread is inside the allocator or inside a call that we make for ourselves: asked by code that may
// run in a signal handler and would allocate.
bool inside_allocator();

}  // namespace cistern::host
