// See next.hpp.
#include "shim/opencl/next.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
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
struct ExtensionFunction {
  const char* name;
  const void* dispatch_word;
  void* function;
};
constinit Lock extension_lock;
constexpr int kExtensionsMax = 64;
constinit ExtensionFunction extensions[kExtensionsMax] = {};
constinit int extension_count = 0;

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

void layer_is_loaded(const Table& below) {
  layer_table = below;
  objects_have_tables.store(true, std::memory_order_relaxed);  // the loader goes by them
  layer_loaded.store(true, std::memory_order_release);
}

const Table& next() { return layer_active() ? layer_table : loader(); }

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

}  // namespace cistern::opencl
