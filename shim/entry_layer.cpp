// The OpenCL layer interface: OPENCL_LAYERS=/path/libcistern.so makes the ICD loader (ocl-icd >= 2.3, Khronos) load us
// and route every call through our dispatch table.
#include <dlfcn.h>
#include <string.h>

#include "pool/base/symbol_table.hpp"
#include "shim/core/core.hpp"
#include "shim/lifecycle.hpp"
#include "shim/opencl/hooks/layer.hpp"
#include "shim/opencl/next.hpp"
#include "shim/process/lookup.hpp"

using namespace cistern::opencl;

namespace {
constexpr cl_uint kLayerApiVersion = 0x4240;
constexpr cl_uint kLayerName = 0x4241;
constexpr cl_uint kVersion100 = 100;
constexpr char kName[] = "cistern";

using InitLayer = cl_int (*)(cl_uint, const void* const*, cl_uint*, const void* const**);

// Any library that the program started with may have such a function.
bool is_of_cistern(const void* function) {
  const link_map* const module = cistern::module_of(function);
  return module && cistern::SymbolTable(*module).defines("cistern_interface");
}

cl_int answer(const void* from, size_t bytes, size_t value_size, void* value, size_t* value_size_ret) {
  if (value && value_size < bytes) return kInvalidValue;
  if (value) memcpy(value, from, bytes);
  if (value_size_ret) *value_size_ret = bytes;
  return kSuccess;
}
}  // namespace

extern "C" [[gnu::visibility("default")]] cl_int clGetLayerInfo(cl_uint name, size_t value_size, void* value,
                                                                size_t* value_size_ret) {
  if (name == kLayerApiVersion) return answer(&kVersion100, sizeof kVersion100, value_size, value, value_size_ret);
  if (name == kLayerName) return answer(kName, sizeof kName, value_size, value, value_size_ret);
  return kInvalidValue;
}

extern "C" [[gnu::visibility("default")]] cl_int clInitLayer(cl_uint slot_count, const void* const* target,
                                                             cl_uint* slot_count_ret, const void* const** layer) {
  // Another file of ours may be preloaded: then that one counts, and this copy stays silent.
  auto first = reinterpret_cast<InitLayer>(cistern::real_dlsym()(RTLD_DEFAULT, "clInitLayer"));
  if (first && first != &clInitLayer && is_of_cistern(reinterpret_cast<const void*>(first))) {
    cistern::stand_aside();
    return first(slot_count, target, slot_count_ret, layer);
  }
  cistern::watch_exit_from_layer();
  return init_layer(slot_count, target, slot_count_ret, layer);
}
