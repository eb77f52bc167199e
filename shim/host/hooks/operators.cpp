// See hooks.hpp: operators new and delete. They are the C++ runtime's where they were replaced or fail: those call the
// malloc family, so the program's new_handler runs and its bad_alloc is thrown, through our frames, as without us. So
// nothing here may be noexcept, and no scope guard may be open around an operator.
#include <stdlib.h>
#include <unistd.h>

#include "shim/host/hooks/hooks.hpp"
#include "shim/host/hooks/slow_path.hpp"
#include "shim/process/lookup.hpp"

namespace cistern::host {
namespace {

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
#include "shim/symbols/host.def"
  return all && !defined_before_us(kOperatorNames);
}

}  // namespace

void prepare_operators() {
  operators_served.store(pooled() && operators_are_the_runtimes(), std::memory_order_relaxed);
}

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
