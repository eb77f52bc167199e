// Which look-ups by name are answered with our OpenCL and CUDA driver exports: exact names of symbols/all.def, only
// where the real answer is the ICD loader's or the driver's. An ICD's own functions (the loader asks for them), the
// CUDA runtime's functions in a library that the caller names (its driver calls are ours anyway) and every other name
// are left alone.
#include "shim/entry_lookup.hpp"

#include <dlfcn.h>
#include <link.h>
#include <atomic>
#include <cstdint>
#include <optional>

#include "pool/base/name_list.hpp"
#include "shim/cuda/runtime.hpp"
#include "shim/cuda/unknown.hpp"
#include "shim/cuda/unseen_calls.hpp"
#include "shim/entry_plugins.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/uncounted.hpp"

// Only their addresses are of interest here; entry_opencl.cpp and entry_cuda.cpp have the types.
extern "C" {
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) void name();
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) void name();
#define CUDA_RUNTIME(action, name, parameters, arguments) void name();
#include "shim/symbols/all.def"
}

namespace {

constexpr const char* kIcdLoader = "libOpenCL.so";
constexpr const char* kDriver = "libcuda.so";
constexpr const char* kRuntime = "libcudart";

// Extension functions are not exported: programs get them through clGetExtensionFunctionAddress*.
constexpr char kNamesText[] =
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) #name "\0"
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) #name "\0"
#define CUDA_RUNTIME(action, name, parameters, arguments) #name "\0"
#include "shim/symbols/all.def"
    ;
constexpr cistern::NameList kNames(kNamesText);
constexpr void (*kFunctions[])() = {
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) &name,
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) &name,
#define CUDA_RUNTIME(action, name, parameters, arguments) &name,
#include "shim/symbols/all.def"
};
enum class Library : std::uint8_t { icd_loader, driver, runtime };
constexpr Library kLibraries[] = {
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) Library::icd_loader,
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) Library::driver,
#define CUDA_RUNTIME(action, name, parameters, arguments) Library::runtime,
#include "shim/symbols/all.def"
};

struct Export {
  const char* name;
  void (*function)();
  const char* library;  // whose function it stands for
};

std::optional<Export> find_export(const char* name) {
  if (name[0] != 'c' || (name[1] != 'l' && name[1] != 'u')) return std::nullopt;
  const std::size_t at = kNames.index_of(name);
  if (at == kNames.count()) return std::nullopt;
  const Library library = kLibraries[at];
  return Export{name, kFunctions[at],
                library == Library::driver    ? kDriver
                : library == Library::runtime ? kRuntime
                                              : kIcdLoader};
}

// Whether the plain program would find a provider in the global search order: one after us, or one before us.
bool provided_globally(const char* name) {
  if (cistern::next_symbol(name)) return true;
  const void* first = cistern::real_dlsym()(RTLD_DEFAULT, name);
  return first && cistern::module_of(first) != cistern::own_module();
}

// A handle in which our names are not found, so that the real dlsym fails and leaves its own message: the plain one but
// for the file named before the colon. Opened once; the C library stays loaded anyway.
void* failing_handle() {
  static constinit std::atomic<void*> c_library{nullptr};
  if (void* known = c_library.load(std::memory_order_acquire)) return known;
  cistern::Uncounted uncounted;
  void* opened = cistern::real_dlopen()("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  c_library.store(opened, std::memory_order_release);
  return opened;
}

// RTLD_DEFAULT, RTLD_NEXT and dlopen(NULL) search us too: without a real provider the plain answer is "none".
DlsymDecision search_order(void* handle, const Export& row, const void* caller_address) {
  const char* name = row.name;
  const bool from_program = cistern::module_of(caller_address) == cistern::main_module();
  if (handle == RTLD_NEXT && !from_program) return {nullptr, handle};
  if (provided_globally(name)) return {nullptr, handle};
  // A plugin may see a private library in its own scope; our export stands before that.
  if (handle == RTLD_DEFAULT && !from_program && cistern::library_is_loaded(row.library)) return {nullptr, handle};
  return {nullptr, failing_handle()};
}

// A wrapper of the driver looks for the function behind its own of the same name. It stands behind us: given ours, it
// would be called by itself, for ever. (A library that was linked in at start has no scope of its own, which the real
// dlsym needs, until dlopen has named it.)
bool provides_itself(const char* name, const void* caller_address) {
  const link_map* caller = cistern::module_of(caller_address);
  if (!caller || caller == cistern::main_module()) return false;
  const cistern::LoadedLibrary library(caller->l_name);
  const void* own = library ? library.find(name) : nullptr;
  return own && cistern::module_of(own) == caller;
}

}  // namespace

DlsymDecision cistern_dlsym_replacement(void* handle, const char* name, const void* caller) {
  const cistern::Dlsym real = cistern::real_dlsym();  // also what the assembly jumps to
  const std::optional<Export> row = find_export(name);
  if (!row) [[likely]] {
    cistern::cuda::note_asked(name);
    cistern::cuda::note_looked_up(name, caller);
    if (handle != RTLD_DEFAULT) before_look_up(name);
    return {nullptr, handle};
  }
  if (row->library == kDriver) cistern::cuda::runtime_looks_up(caller);
  if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || handle == cistern::main_module())
    return search_order(handle, *row, caller);
  if (cistern::switched_off()) return {nullptr, handle};
  const void* found = real(handle, name);
  if (found && provides_itself(name, caller)) return {nullptr, handle};
  if (found && row->library != kRuntime && cistern::lies_in_library(found, row->library))
    return {reinterpret_cast<void*>(row->function), handle};
  return {nullptr, handle};
}
