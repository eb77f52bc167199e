// See next.hpp.
#include "shim/opencl/next.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/process_start.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern::opencl {
namespace {

constexpr char kLoaderName[] = "libOpenCL.so.1";

constinit Lock resolve_lock;
constinit Table loader_table;
constinit std::atomic<bool> loader_resolved{false};
constinit Table layer_table;
constinit std::atomic<bool> layer_loaded{false};
constinit std::atomic<bool> objects_have_tables{false};
constinit const void* layer_slots[kDispatchSlots] = {};

// OPENCL_LAYERS as it stands in environ: [first, last) had no terminator before the loader cut it.
constinit char* layers_first = nullptr;
constinit char* layers_last = nullptr;

struct ExtensionFunction {
  const char* name;
  const void* dispatch_word;
  void* function;
};
constinit Lock extension_lock;
constexpr int kExtensionsMax = 64;
constinit ExtensionFunction extensions[kExtensionsMax] = {};
constinit int extension_count = 0;

struct Row {
  const char* name;
  void* hook;
};
const Row kRows[] = {
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) {#name, reinterpret_cast<void*>(&hook::name)},
#define OPENCL_EXTENSION(action, result, name, parameters, arguments) {#name, reinterpret_cast<void*>(&hook::name)},
#include "shim/symbols/opencl.def"
};

// The loader by its usual name, else one that a package brought along under a name of its own.
String loader_name() {
  if (LoadedLibrary(kLoaderName)) return kLoaderName;
  const String renamed = path_of_library_with("clGetPlatformIDs", "clCreateContext");
  return renamed.empty() ? String(kLoaderName) : renamed;
}

template <class Function>
void resolve(Function& member, const char* name, const String& library) {
  member = reinterpret_cast<typename Function::Pointer>(real_symbol(name, library.c_str()));
}

// The loader reads OPENCL_LAYERS on its first call. If that call were one of ours, its first half would run in the
// export and its second in the layer: so the loader is woken before.
void wake_loader(const String& library) {
  if (!environment_variable("OPENCL_LAYERS")) return;
  auto platforms = reinterpret_cast<cl_int (*)(cl_uint, cl_platform_id*, cl_uint*)>(
      real_symbol("clGetPlatformIDs", library.c_str()));
  cl_uint count = 0;
  if (platforms) platforms(0, nullptr, &count);
}

// The look-ups take the dynamic linker's lock, so ours is not held meanwhile: a library's constructor may call OpenCL.
void resolve_loader() {
  Uncounted uncounted;
  const String library = loader_name();
  Table found;
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) resolve(found.name, #name, library);
#include "shim/symbols/opencl.def"
#define CISTERN_RESOLVE(slot, name, type) resolve(found.name, #name, library);
  CISTERN_OPENCL_QUESTIONS(CISTERN_RESOLVE)
  resolve(found.clFlush, "clFlush", library);
  resolve(found.clGetPlatformIDs, "clGetPlatformIDs", library);
  // A program that calls before it loads the ICD loader may load it later.
  if (!found.clCreateBuffer) return;
  {
    Locked hold(resolve_lock);
    if (loader_resolved.load(std::memory_order_acquire)) return;
    loader_table = found;
    loader_resolved.store(true, std::memory_order_release);
  }
  wake_loader(library);
}

const void* dispatch_word(const void* object) { return object ? *static_cast<const void* const*>(object) : nullptr; }

// How long the variable was before the loader cut it: the variables that the process was started with stand back to
// back, between the AT_RANDOM bytes and the AT_EXECFN string. One that the program set itself is left alone.
void note_layers_variable() {
  char* value = getenv("OPENCL_LAYERS");
  char* block_first = reinterpret_cast<char*>(start_value(AT_RANDOM));
  char* after = reinterpret_cast<char*>(start_value(AT_EXECFN));
  if (!value || value < block_first || value > after) return;
  for (char** variable = environ; *variable; ++variable)
    if (*variable > value && *variable < after) after = *variable;
  layers_first = value;
  layers_last = after - 1;
}

void keep_loaded(const void* function) {
  Dl_info info;
  if (dladdr(function, &info) && info.dli_fname) real_dlopen()(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

}  // namespace

const Table& loader() {
  if (!loader_resolved.load(std::memory_order_acquire)) [[unlikely]]
    resolve_loader();
  return loader_table;
}

bool driver_has(cl_uint slot, const void* object) {
  if (!object || !objects_have_tables.load(std::memory_order_relaxed)) return true;
  return static_cast<const void* const*>(dispatch_word(object))[slot] != nullptr;
}

// cl_khr_icd: objects begin with the address of their driver's table.
void learn_whether_objects_have_tables() {
  if (objects_have_tables.load(std::memory_order_relaxed)) return;
  Uncounted uncounted;
  constexpr cl_uint kExtensions = 0x0904, kPlatformsMax = 64;
  cl_platform_id platforms[kPlatformsMax];
  cl_uint count = 0;
  if (next().clGetPlatformIDs.own(kPlatformsMax, platforms, &count) != kSuccess || count > kPlatformsMax) return;
  for (cl_uint i = 0; i < count; ++i) {
    std::size_t bytes = 0;
    if (next().clGetPlatformInfo.own(platforms[i], kExtensions, 0, nullptr, &bytes) != kSuccess) return;
    String names(bytes, '\0');
    if (next().clGetPlatformInfo.own(platforms[i], kExtensions, bytes, names.data(), nullptr) != kSuccess) return;
    if (names.find("cl_khr_icd") == String::npos) return;
  }
  objects_have_tables.store(count != 0, std::memory_order_relaxed);
}

bool layer_active() { return layer_loaded.load(std::memory_order_acquire); }

const Table& next() { return layer_active() ? layer_table : loader(); }

cl_int init_layer(cl_uint slot_count, const void* const* target, cl_uint* slot_count_ret, const void* const** layer) {
  if (!target || !slot_count_ret || !layer) return kInvalidValue;
  if (switched_off()) {
    *slot_count_ret = slot_count;
    *layer = target;
    return kSuccess;
  }
  const cl_uint count = slot_count < kDispatchSlots ? slot_count : kDispatchSlots;
  for (cl_uint slot = 0; slot < count; ++slot) layer_slots[slot] = target[slot];
  const auto target_of = [&](cl_uint slot) { return slot < count ? target[slot] : nullptr; };
#define OPENCL_CALL(action, slot, result, name, parameters, arguments)                                          \
  layer_table.name = reinterpret_cast<decltype(layer_table.name)::Pointer>(const_cast<void*>(target_of(slot))); \
  if (layer_table.name) layer_slots[slot] = reinterpret_cast<const void*>(&hook::name);
#include "shim/symbols/opencl.def"
#define CISTERN_TAKE(slot, name, type) \
  layer_table.name = reinterpret_cast<decltype(layer_table.name)::Pointer>(const_cast<void*>(target_of(slot)));
  CISTERN_OPENCL_QUESTIONS(CISTERN_TAKE)
  layer_table.clGetPlatformIDs =
      reinterpret_cast<decltype(layer_table.clGetPlatformIDs)::Pointer>(const_cast<void*>(target_of(kSlotPlatforms)));
  layer_table.clFlush =
      reinterpret_cast<decltype(layer_table.clFlush)::Pointer>(const_cast<void*>(target_of(kSlotFlush)));
  // The program may close the loader again, but its functions are called for as long as buffers are kept.
  for (cl_uint slot = 0; slot < count; ++slot)
    if (target[slot]) {
      keep_loaded(target[slot]);
      break;
    }
  objects_have_tables.store(true, std::memory_order_relaxed);  // the loader goes by them
  note_layers_variable();
  layer_loaded.store(true, std::memory_order_release);
  *slot_count_ret = count;
  *layer = layer_slots;
  return kSuccess;
}

void restore_layers_variable() {
  if (!layers_first) return;
  for (char* at = layers_first; at < layers_last; ++at)
    if (*at == '\0') *at = ':';
  layers_first = nullptr;
}

bool remember_extension(const char* name, const void* platform, void* function) {
  const void* word = dispatch_word(platform);
  Locked hold(extension_lock);
  for (int i = 0; i < extension_count; ++i) {
    ExtensionFunction& known = extensions[i];
    if (known.dispatch_word == word && !strcmp(known.name, name)) return known.function = function, true;
  }
  if (extension_count == kExtensionsMax) return false;
  extensions[extension_count++] = {name, word, function};
  return true;
}

void* extension_function(const char* name, const void* object_of_platform) {
  const void* word = dispatch_word(object_of_platform);
  void* any = nullptr;
  Locked hold(extension_lock);
  for (int i = 0; i < extension_count; ++i) {
    const ExtensionFunction& known = extensions[i];
    if (strcmp(known.name, name) != 0) continue;
    if (known.dispatch_word == word) return known.function;
    any = known.function;
  }
  return any;
}

void next_before_fork() {
  resolve_lock.lock_for_fork();
  extension_lock.lock_for_fork();
}

void next_after_fork() {
  extension_lock.unlock_after_fork();
  resolve_lock.unlock_after_fork();
}

void* hook_for(const char* name, const char** own_name) {
  for (const Row& row : kRows)
    if (!strcmp(row.name, name)) return *own_name = row.name, row.hook;
  return nullptr;
}

}  // namespace cistern::opencl
