// Modules and libraries: any image is accepted, and has every kernel that the program has defined.
#include <memory>
#include <unordered_map>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/kernel.hpp"
#include "tests/simcuda/driver/own_memory.hpp"

namespace simcuda {
namespace {

struct Module {
  Context* context = nullptr;
  bool of_library = false;
  std::shared_ptr<OwnMemory> memory;
};

struct Library {
  std::unordered_map<Context*, Module*> modules;  // made when they are asked for
  std::shared_ptr<OwnMemory> memory;              // [assumed] in the context that is current when it is loaded
};

std::unordered_map<CUmodule, std::unique_ptr<Module>>& modules() {
  static auto& all = *new std::unordered_map<CUmodule, std::unique_ptr<Module>>;
  return all;
}

std::unordered_map<CUlibrary, std::unique_ptr<Library>>& libraries() {
  static auto& all = *new std::unordered_map<CUlibrary, std::unique_ptr<Library>>;
  return all;
}

Module* make_module(Locked&, Context* context, bool of_library, std::shared_ptr<OwnMemory> memory) {
  auto module = std::make_unique<Module>(Module{context, of_library, std::move(memory)});
  Module* made = module.get();
  modules().emplace(reinterpret_cast<CUmodule>(made), std::move(module));
  return made;
}

CUresult load(CUmodule* handle) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  auto memory = OwnMemory::take_overhead(lock, *context->device);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUmodule>(make_module(lock, context, false, std::move(memory)));
  return CUDA_SUCCESS;
}

CUresult load_library(CUlibrary* handle) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  auto library = std::make_unique<Library>();
  CUresult ignored;
  if (const Context* context = current_context(ignored)) {
    library->memory = OwnMemory::take_overhead(lock, *context->device);
    if (!library->memory) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = reinterpret_cast<CUlibrary>(library.get());
  libraries().emplace(*handle, std::move(library));
  return CUDA_SUCCESS;
}

}  // namespace

void drop_modules_of(Locked& lock, Context& context) {
  for (auto& [handle, library] : libraries()) library->modules.erase(&context);
  for (auto entry = modules().begin(); entry != modules().end();) {
    if (entry->second->context != &context) {
      ++entry;
      continue;
    }
    drop_functions_of(lock, entry->second.get());
    entry = modules().erase(entry);
  }
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuModuleLoad(CUmodule* module, const char*) {
  SIMCUDA_CALL(kUnsafe);
  return load(module);
}

extern "C" CUresult cuModuleLoadData(CUmodule* module, const void*) {
  SIMCUDA_CALL(kUnsafe);
  return load(module);
}

extern "C" CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  SIMCUDA_CALL(kUnsafe);
  return load(module);
}

extern "C" CUresult cuModuleLoadFatBinary(CUmodule* module, const void*) {
  SIMCUDA_CALL(kUnsafe);
  return load(module);
}

extern "C" CUresult cuModuleUnload(CUmodule handle) {
  SIMCUDA_CALL(kUnsafe);
  Locked lock = lock_driver();
  const auto found = modules().find(handle);
  if (found == modules().end() || found->second->of_library) return CUDA_ERROR_INVALID_HANDLE;
  wait_for(lock, unfinished_in(lock, *found->second->context));
  drop_functions_of(lock, handle);
  modules().erase(handle);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module, const char* name) {
  SIMCUDA_CALL(kOrdinary);
  if (!handle || !name) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  if (!modules().contains(module)) return CUDA_ERROR_INVALID_HANDLE;
  Function* function = function_in(lock, module, name);
  *handle = reinterpret_cast<CUfunction>(function);
  return function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

extern "C" CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  SIMCUDA_CALL(kContextless);
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                                      CUlibraryOption*, void**, unsigned) {
  SIMCUDA_CALL(kContextless);
  return load_library(library);
}

extern "C" CUresult cuLibraryLoadFromFile(CUlibrary* library, const char*, CUjit_option*, void**, unsigned,
                                          CUlibraryOption*, void**, unsigned) {
  SIMCUDA_CALL(kContextless);
  return load_library(library);
}

extern "C" CUresult cuLibraryUnload(CUlibrary handle) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const auto found = libraries().find(handle);
  if (found == libraries().end()) return CUDA_ERROR_INVALID_HANDLE;
  drop_functions_of(lock, handle);
  for (const auto& [context, module] : found->second->modules) {
    drop_functions_of(lock, module);
    modules().erase(reinterpret_cast<CUmodule>(module));
  }
  libraries().erase(handle);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuLibraryGetKernel(CUkernel* handle, CUlibrary library, const char* name) {
  SIMCUDA_CALL(kContextless);
  if (!handle || !name) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  if (!libraries().contains(library)) return CUDA_ERROR_INVALID_HANDLE;
  Function* function = function_in(lock, library, name);
  *handle = reinterpret_cast<CUkernel>(function);
  return function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

extern "C" CUresult cuLibraryGetModule(CUmodule* handle, CUlibrary library_handle) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  const auto found = libraries().find(library_handle);
  if (!context) return result;
  if (found == libraries().end()) return CUDA_ERROR_INVALID_HANDLE;
  Module*& module = found->second->modules[context];
  if (!module) module = make_module(lock, context, true, nullptr);
  *handle = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  if (!find_function(lock, kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  const Function* function = find_function(lock, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *module = reinterpret_cast<CUmodule>(const_cast<void*>(function->container));
  return modules().contains(*module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// [assumed] As of a small kernel compiled for 9.0.
extern "C" CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!find_function(lock, handle)) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 16;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = 90;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

extern "C" CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute, int) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  return find_function(lock, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

extern "C" CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  return find_function(lock, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
