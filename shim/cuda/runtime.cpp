// See runtime.hpp.
#include "shim/cuda/runtime.hpp"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "pool/base/path.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/unwind/modules.hpp"

namespace cistern::cuda {
namespace {

constexpr int kCalls = static_cast<int>(RuntimeCall::count);
constexpr const char* kNames[] = {
#define CUDA_RUNTIME(action, name, parameters, arguments) #name,
#include "shim/symbols/cuda.def"
};
constexpr std::string_view kRuntimePrefix = "libcudart";

// A runtime, and what it has of our rows. Never freed: another thread may just be reading it. There is one more for
// each place in memory that the library was ever loaded at.
struct Runtime {
  String name;            // as the modules that need it have it; empty: for those that name none
  const Module* library;  // where its functions lie
  void* functions[kCalls];
  const Runtime* next;
};

// How often a library was unloaded, and below that how many are being unloaded now. Either way another one may take
// its place in memory, to the byte.
constinit std::atomic<std::uint64_t> unloads{0};
constexpr std::uint64_t kOneUnload = 1 << 16;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

// The runtime that a module's calls go to, as was found when `unloads` had this value. Published as one.
struct Target {
  const Runtime* runtime;
  std::atomic<std::uint64_t> checked_at;
};

// A calling module, by the address of its dynamic section.
struct Caller {
  std::atomic<std::uintptr_t> address{0};
  std::atomic<Target*> target{nullptr};
};

constinit AddressTable<Caller> callers;
constinit std::atomic<const Runtime*> runtimes{nullptr};
constinit Lock runtimes_lock;

// Generated code is of no module.
std::uintptr_t key_of(const link_map* map) {
  return reinterpret_cast<std::uintptr_t>(map ? static_cast<const void*>(map->l_ld) : &unloads);
}

// The text of a module's dynamic section that has this tag and this beginning.
const char* dynamic_text(const link_map* map, ElfW(Sxword) tag, std::string_view prefix) {
  const char* strings = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  if (!strings) return nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == tag && std::string_view(strings + entry->d_un.d_val).starts_with(prefix))
      return strings + entry->d_un.d_val;
  return nullptr;
}

// The runtime among the libraries that a module says it needs; empty: none.
const char* needed_runtime(const link_map* map) {
  const char* needed = map ? dynamic_text(map, DT_NEEDED, kRuntimePrefix) : nullptr;
  return needed ? needed : "";
}

// Without the dynamic linker's lock: a thread that holds it may wait for this one.
const Runtime* known_runtime(std::string_view name) {
  const Runtime* runtime = runtimes.load(std::memory_order_acquire);
  while (runtime && (runtime->name != name || !lies_in(*runtime->library, runtime->library->start)))
    runtime = runtime->next;
  return runtime;
}

// Looks up all functions together. Those that lie elsewhere than the first are looked up at each call.
template <class Find>
const Runtime* learn(const char* name, Find find) {
  Runtime made{name, nullptr, {}, nullptr};
  for (int i = 0; i < kCalls; ++i) {
    void* const function = find(kNames[i]);
    const auto address = reinterpret_cast<std::uintptr_t>(function);
    if (function && !made.library && !module_at(address, made.library)) return nullptr;
    if (function && made.library && lies_in(*made.library, address)) made.functions[i] = function;
  }
  if (!made.library) return nullptr;
  auto* runtime = new (internal_allocate(sizeof(Runtime))) Runtime(std::move(made));
  Locked hold(runtimes_lock);
  runtime->next = runtimes.load(std::memory_order_relaxed);
  runtimes.store(runtime, std::memory_order_release);
  return runtime;
}

struct AnyRuntime {
  const char* path;
};

// A runtime that a plugin loaded for itself, where the caller names none.
const char* loaded_runtime() {
  AnyRuntime any{nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        if (!basename_of(info->dlpi_name).starts_with(kRuntimePrefix)) return 0;
        static_cast<AnyRuntime*>(data)->path = info->dlpi_name;
        return 1;
      },
      &any);
  return any.path;
}

// The first answer of use(find) where a caller's runtime may be: the library it needs, the next one in the global
// order, the runtime that any module loaded. The library stays loaded through the module that needs it, not through us.
template <class Answer, class Use>
Answer* first_answer(const char* needed, Use use) {
  Uncounted uncounted;
  for (const char* name : {needed, "", loaded_runtime()}) {
    if (!name) break;
    if (!*name) {
      if (Answer* answer = use(next_symbol)) return answer;
    } else if (const LoadedLibrary library(name); library) {
      if (Answer* answer = use([&](const char* function) { return library.find(function); })) return answer;
    }
  }
  return nullptr;
}

const Runtime* find_runtime(const char* needed) {
  return first_answer<const Runtime>(needed, [&](auto find) { return learn(needed, find); });
}

void note_target(std::uintptr_t key, const Runtime* runtime, std::uint64_t now) {
  Caller* caller = callers.find(key);
  if (!caller) {
    Locked hold(runtimes_lock);
    caller = callers.find(key);
    if (!caller) {
      caller = new (internal_allocate(sizeof(Caller))) Caller;
      caller->address.store(key);
      callers.insert(key, caller);
    }
  }
  Target* target = caller->target.load(std::memory_order_acquire);
  if (!target || target->runtime != runtime) {
    target = new (internal_allocate(sizeof(Target))) Target{runtime, kNever};
    caller->target.store(target, std::memory_order_release);
  }
  target->checked_at.store(now % kOneUnload ? kNever : now, std::memory_order_relaxed);
}

[[gnu::noinline]] void* look_again(const link_map* map, int index, std::uint64_t now) {
  const char* needed = needed_runtime(map);
  const Runtime* runtime = known_runtime(needed);
  if (!runtime) runtime = find_runtime(needed);
  if (!runtime) return nullptr;
  note_target(key_of(map), runtime, now);
  if (runtime->functions[index]) return runtime->functions[index];
  return first_answer<void>(needed, [&](auto find) { return find(kNames[index]); });
}

}  // namespace

void runtime_before_fork() {
  runtimes_lock.lock_for_fork();
  callers.before_fork();
}
void runtime_after_fork() {
  callers.after_fork();
  runtimes_lock.unlock_after_fork();
}

void library_unloads() { unloads.fetch_add(1); }
void library_unloaded() { unloads.fetch_add(kOneUnload - 1); }

void runtime_looks_up(const void* caller) {
  if (!lies_in_library(caller, kRuntimePrefix)) return;
  const char* name = dynamic_text(module_of(caller), DT_SONAME, "");
  if (name && !known_runtime(name)) find_runtime(name);
}

// An error that the program has not asked for is not left to it.
int enter_runtime() {
  Uncounted uncounted;
  const char* const path = loaded_runtime();
  if (!path) return 0;
  const LoadedLibrary runtime(path);
  const auto find = [&]<class Function>(Function*& function, const char* name) {
    function = runtime ? reinterpret_cast<Function*>(runtime.find(name)) : nullptr;
    return function != nullptr;
  };
  cudaError_t (*get)(int*), (*set)(int), (*peek)(), (*clear)();
  if (!find(get, "cudaGetDevice") || !find(set, "cudaSetDevice") || !find(peek, "cudaPeekAtLastError") ||
      !find(clear, "cudaGetLastError"))
    return 0;
  const bool was_clear = peek() == kSuccess;
  int device = 0;
  if ((get(&device) != kSuccess || set(device) != kSuccess) && was_clear) clear();
  return device;
}

void* runtime_function(RuntimeCall call, const void* caller) {
  const link_map* map = module_of(caller);
  const int index = static_cast<int>(call);
  const std::uint64_t now = unloads.load(std::memory_order_acquire);
  const Caller* known = callers.find(key_of(map));
  const Target* target = known ? known->target.load(std::memory_order_acquire) : nullptr;
  if (target && target->checked_at.load(std::memory_order_relaxed) == now) [[likely]]
    if (void* function = target->runtime->functions[index]) [[likely]]
      return function;
  return look_again(map, index, now);
}

cudaError_t Observing::made(cudaError_t answer, const void* memory) {
  const Observed& seen = before_ ? *before_ : mine_;
  if (answer == kSuccess && memory && !seen.seen_by_driver) add(state().account.escaped);
  return answer;
}

}  // namespace cistern::cuda
