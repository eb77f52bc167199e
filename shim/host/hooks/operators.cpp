// See hooks.hpp: operators new and delete. They are the C++ runtime's where they were replaced or fail: those call the
// malloc family, so the program's new_handler runs and its bad_alloc is thrown, through our frames, as without us. So
// nothing here may be noexcept, and no scope guard may be open around an operator.
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim/host/counters.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/host/hooks/slow_path.hpp"
#include "shim/process/find_object.hpp"
#include "shim/process/lookup.hpp"

namespace cistern::host {
namespace {

[[noreturn]] void die_without_runtime() {
  constexpr char kLine[] = "cistern: operator new failed, and no C++ runtime was found to throw std::bad_alloc\n";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
  abort();
}

// Where another allocator serves, and brings operators of its own: they may call malloc and free by name, and are
// counted then as others are, or not.
constinit bool operators_counted = false;

bool in_one_object(const void* a, const void* b) {
  dl_find_object of_a{}, of_b{};
  return a && b && find_object(a, of_a) == 0 && find_object(b, of_b) == 0 && of_a.dlfo_map_start == of_b.dlfo_map_start;
}

template <class... Arguments>
void* new_counted(void* (*others)(Arguments...), Arguments... arguments) {
  in_operator = kMaking;
  void* const block = others(arguments...);
  if (block && in_operator == kMaking && counting()) count_birth(native_usable(block));
  in_operator = 0;
  return block;
}

template <class... Arguments>
void delete_counted(void (*others)(void*, Arguments...), void* block, Arguments... arguments) {
  const InOperator before = in_operator;
  if (counting() && giving_back(block) != before) count_death(native_usable(block));
  in_operator = giving_back(block);
  others(block, arguments...);
  in_operator = before;
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
  if (runtime && operators_counted) return new_counted(runtime, arguments...);
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
  if (runtime && operators_counted && block) return delete_counted(runtime, block, arguments...);
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
  operators_counted = !pooled() && in_one_object(reinterpret_cast<const void*>(native_operators()._Znwm),
                                                 reinterpret_cast<const void*>(native().malloc));
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
