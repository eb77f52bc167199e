// See gathering.hpp. The error of a copy that was held is told by calls whose documentation says that they may answer
// with errors of earlier work: those that enqueue work, wait or ask for it. Copies are in copy.cpp.
#include "shim/cuda/hooks/gathering.hpp"

#include <string_view>

#include "shim/cuda/gather.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/process.hpp"

namespace cistern::cuda {

Route decide_route() {
  if (switched_off()) return Route::driver;
  return options().gather ? Route::gathering : Route::hook;
}

namespace gathering {

#define SEND_AND_CALL(tells, name, parameters, arguments)  \
  CUresult name parameters {                               \
    const CUresult late = before_call(Sent::call, tells);  \
    return late == kSuccess ? hook::name arguments : late; \
  }
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) \
  SEND_AND_CALL(waits_or_launches(#name) ? Tells::yes : Tells::no, name, parameters, arguments)
#define CUDA_OBSERVE(base, version, stream, name, parameters, arguments) \
  SEND_AND_CALL(Tells::yes, name, parameters, arguments)
#define CUDA_WAIT(base, version, stream, name, parameters, arguments, for_what) \
  SEND_AND_CALL(Tells::yes, name, parameters, arguments)
#define CUDA_MARK(base, version, stream, name, parameters, arguments, event, on) \
  SEND_AND_CALL(Tells::yes, name, parameters, arguments)
#define CUDA_ENQUEUE(base, version, stream, name, parameters, arguments, on) \
  SEND_AND_CALL(Tells::yes, name, parameters, arguments)
#define CUDA_USE(base, version, stream, name, parameters, arguments, on, ...) \
  SEND_AND_CALL(Tells::yes, name, parameters, arguments)
#define CUDA_COPY(base, version, stream, name, parameters, arguments, copied)
namespace {
// Rows of the general action.
constexpr bool waits_or_launches(std::string_view name) {
  return name.starts_with("cuCtxSynchronize") || name.starts_with("cuGraphLaunch") ||
         name.starts_with("cuLaunchHostFunc") || name.starts_with("cuStreamAddCallback");
}
}  // namespace
#include "shim/symbols/cuda.def"
#undef SEND_AND_CALL

}  // namespace gathering
}  // namespace cistern::cuda
