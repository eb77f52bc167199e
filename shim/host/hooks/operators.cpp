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
void* slow_new(void* (*runtime)(Arguments...), NewRequest request, Arguments... arguments) {
  if (!request.alignment && operators_served.load(std::memory_order_relaxed))
    if (void* const block = hook_malloc(request.bytes)) return block;
  if (runtime) [[likely]]
    return runtime(arguments...);
  const std::size_t bytes = request.bytes ? request.bytes : 1;
  void* block = request.alignment ? hook_memalign(request.alignment, bytes) : hook_malloc(bytes);
  if (block) return block;
  if (void* late = late_operator(request.name)) return reinterpret_cast<void* (*)(Arguments...)>(late)(arguments...);
  if (request.throws) die_without_runtime();
  return nullptr;
}

// What the runtime's would do is free the block; only replaced ones do something else.
template <class... Arguments>
void slow_delete(void (*runtime)(void*, Arguments...), void* block, Arguments... arguments) {
  if (operators_served.load(std::memory_order_relaxed)) return free_slow(block);
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
#define HOST_OPERATOR(result, name, parameters, arguments) \
  if (next.name && !in_cxx_runtime(reinterpret_cast<const void*>(next.name))) all = false;
#include "shim/symbols/host.def"
  return all && !defined_before_us(kOperatorNames);
}

}  // namespace

void prepare_operators() {
  operators_served.store(pooled() && operators_are_the_runtimes(), std::memory_order_relaxed);
}

#define LIST(...) __VA_ARGS__
#define HOST_NEW(name, alignment, throws, parameters, arguments)                                 \
  void* slow_##name parameters {                                                                 \
    return slow_new(native_operators().name, {bytes, alignment, throws, #name}, LIST arguments); \
  }
#define HOST_DELETE(name, parameters, arguments) \
  void slow_##name parameters { slow_delete(native_operators().name, LIST arguments); }
#include "shim/symbols/host.def"
#undef LIST

}  // namespace cistern::host
