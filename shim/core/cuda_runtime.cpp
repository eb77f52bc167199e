// See cuda_runtime.hpp.
#include "shim/core/cuda_runtime.hpp"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "shim/core/core.hpp"
#include "shim/core/lookup.hpp"

namespace cistern::cuda {
namespace {

constexpr int kCalls = static_cast<int>(RuntimeCall::count);
constexpr const char* kNames[] = {
#define CUDA_RUNTIME(action, name, parameters, arguments) #name,
#include "shim/symbols.def"
};
constexpr char kRuntimePrefix[] = "libcudart";

// What one calling module's calls go to, as long as no library is unloaded: another one may take its place in memory,
// to the byte.
constinit std::atomic<std::uint64_t> unloads{0};

struct Module {
  std::atomic<std::uintptr_t> address{0};
  const void* dynamic = nullptr;
  struct Target {
    std::atomic<void*> function{nullptr};
    std::atomic<std::uint64_t> unloads{0};
  } targets[kCalls];
};

AddressTable<Module>& modules() {
  static auto* table = new (internal_allocate(sizeof(AddressTable<Module>))) AddressTable<Module>;
  return *table;
}
constinit Lock modules_lock;

Module* module_record(const link_map* map) {
  const auto address = reinterpret_cast<std::uintptr_t>(map);
  Module* module = modules().find(address);
  if (module && module->dynamic == map->l_ld) [[likely]]
    return module;
  Locked hold(modules_lock);
  module = modules().find(address);
  if (!module) {
    module = new (internal_allocate(sizeof(Module))) Module;
    module->address.store(address);
    module->dynamic = map->l_ld;
    modules().insert(address, module);
  } else if (module->dynamic != map->l_ld) {
    for (Module::Target& target : module->targets) target.function.store(nullptr);
    module->dynamic = map->l_ld;
  }
  return module;
}

// The runtime among the libraries that a module says it needs.
const char* needed_runtime(const link_map* map) {
  const char* strings = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  if (!strings) return nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_NEEDED && !strncmp(strings + entry->d_un.d_val, kRuntimePrefix, sizeof kRuntimePrefix - 1))
      return strings + entry->d_un.d_val;
  return nullptr;
}

// The library stays loaded through the module that needs it, not through us.
void* find_in(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return dlerror(), nullptr;
  void* found = real_dlsym()(handle, name);
  if (!found) dlerror();
  dlclose(handle);
  return found;
}

struct AnyRuntime {
  const char* path;
};

// A runtime that a plugin loaded for itself, where the caller names none.
const char* loaded_runtime() {
  AnyRuntime any{nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        const char* slash = strrchr(info->dlpi_name, '/');
        if (strncmp(slash ? slash + 1 : info->dlpi_name, kRuntimePrefix, sizeof kRuntimePrefix - 1)) return 0;
        static_cast<AnyRuntime*>(data)->path = info->dlpi_name;
        return 1;
      },
      &any);
  return any.path;
}

void* find_function(const char* name, const link_map* caller) {
  host::Uncounted uncounted;
  if (const char* needed = caller ? needed_runtime(caller) : nullptr)
    if (void* found = find_in(needed, name)) return found;
  if (void* found = next_symbol(name)) return found;
  const char* loaded = loaded_runtime();
  return loaded ? find_in(loaded, name) : nullptr;
}

}  // namespace

void runtime_before_fork() {
  modules_lock.lock();
  modules().before_fork();
}
void runtime_after_fork() {
  modules().after_fork();
  modules_lock.unlock();
}

void library_unloaded() { unloads.fetch_add(1, std::memory_order_release); }

void* runtime_function(RuntimeCall call, const void* caller) {
  const link_map* map = module_of(caller);
  const int index = static_cast<int>(call);
  if (!map) return find_function(kNames[index], nullptr);  // generated code
  Module::Target& target = module_record(map)->targets[index];
  const std::uint64_t now = unloads.load(std::memory_order_acquire);
  const std::uint64_t found_at = target.unloads.load(std::memory_order_acquire);
  void* function = target.function.load(std::memory_order_relaxed);
  if (function && found_at == now) [[likely]]
    return function;
  function = find_function(kNames[index], map);
  target.function.store(function, std::memory_order_relaxed);
  target.unloads.store(now, std::memory_order_release);
  return function;
}

cudaError_t Observing::made(cudaError_t answer, const void* memory) {
  const Observed& seen = before_ ? *before_ : mine_;
  if (answer == kSuccess && memory && !seen.seen_by_driver) add(state().escaped);
  return answer;
}

}  // namespace cistern::cuda
