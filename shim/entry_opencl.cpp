// The exported OpenCL functions: what a program that links libOpenCL, or looks a function up by dlsym, calls first.
// They have no logic. An export calls the hook, or the loader's function if the loader has Cistern as a layer: the
// layer calls the hook then (opencl/next.hpp).
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/next.hpp"
#include "shim/process/environment.hpp"

using namespace cistern::opencl;

namespace {

// Without an ICD loader in the process there is nothing to forward to. A program can only come here through a weak
// reference that our export has satisfied.
template <class Result>
Result no_loader() {
  if constexpr (std::is_pointer_v<Result>)
    return nullptr;
  else if constexpr (!std::is_void_v<Result>)
    return kPlatformNotFound;
}

}  // namespace

#define OPENCL_CALL(action, slot, result, name, parameters, arguments)             \
  extern "C" [[gnu::visibility("default")]] result name parameters {               \
    if (!loader().name) [[unlikely]]                                               \
      return no_loader<result>();                                                  \
    if (layer_active() || cistern::switched_off()) return loader().name arguments; \
    return hook::name arguments;                                                   \
  }
#include "shim/symbols/opencl.def"
