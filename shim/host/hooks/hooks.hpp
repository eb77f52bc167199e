// The hooks of the malloc family and of operators new and delete. The host pool serves each call. If the pool is off,
// or the program brings an allocator of its own, the call is counted and passed on.
//
// The calls that programs make most are inline here. They try the fast path (pool/heap/fast_path.hpp), and else call
// malloc_slow and free_slow (allocate.cpp).
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
// Frees for the C interface. False: it is not a live block; a line on stderr names `api`, and the process goes on.
bool free_checked(void* block, const char* api);
// The same check for a call that keeps the block: a resize, which keeps it even with no bytes.
bool is_live_block(void* block, const char* api);

// Whether operators new and delete are the C++ runtime's own, which would call malloc: then the pool serves them. If
// the program replaced them, its own are called.
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
