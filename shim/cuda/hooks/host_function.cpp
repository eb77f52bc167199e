// Functions of the program's that are put on streams (host_functions.hpp): work like a launch, or a graph's node where
// the stream captures.
#include "shim/cuda/host_functions.hpp"

#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/state.hpp"
#include "shim/cuda/stream_turn.hpp"

namespace cistern::cuda {
namespace {

template <class Host, class Pass>
CUresult put_on_stream(CUstream stream, Zero zero, const Host& host, Pass pass) {
  CudaState& s = state();
  const StreamTurn turn(s, stream, zero);
  Transfers::last_was_no_copy();
  const CUresult answer = note(s, pass(host));
  if (answer != kSuccess) dropped(host);
  return answer;
}

template <class Pass>
CUresult launch(CUstream stream, Zero zero, const CUDA_HOST_NODE_PARAMS& host, Pass pass) {
  // A graph may run the function again: then it is not forgotten after its first run.
  const bool of_graph = may_be_captured(state(), stream, zero == Zero::per_thread);
  return put_on_stream(stream, zero, of_graph ? run_by_graph(host) : run_once(host), pass);
}

}  // namespace

namespace hook {

#define HOST_FUNCTION_HOOKS(suffix, zero)                                                                             \
  CUresult cuLaunchHostFunc##suffix(CUstream stream, CUhostFn callback, void* user_data) {                            \
    return launch(stream, zero, {callback, user_data}, [&](const CUDA_HOST_NODE_PARAMS& ours) {                       \
      return driver().cuLaunchHostFunc##suffix(stream, ours.function, ours.argument);                                 \
    });                                                                                                               \
  }                                                                                                                   \
  CUresult cuLaunchHostFunc_v2##suffix(CUstream stream, CUhostFn callback, void* user_data, unsigned mode) {          \
    return launch(stream, zero, {callback, user_data}, [&](const CUDA_HOST_NODE_PARAMS& ours) {                       \
      return driver().cuLaunchHostFunc_v2##suffix(stream, ours.function, ours.argument, mode);                        \
    });                                                                                                               \
  }                                                                                                                   \
  CUresult cuStreamAddCallback##suffix(CUstream stream, CUstreamCallback callback, void* user_data, unsigned flags) { \
    return put_on_stream(stream, zero, run_once(StreamCallback{callback, user_data}),                                 \
                         [&](const StreamCallback& ours) {                                                            \
                           return driver().cuStreamAddCallback##suffix(stream, ours.function, ours.argument, flags);  \
                         });                                                                                          \
  }
HOST_FUNCTION_HOOKS(, Zero::legacy)
HOST_FUNCTION_HOOKS(_ptsz, Zero::per_thread)
#undef HOST_FUNCTION_HOOKS

}  // namespace hook
}  // namespace cistern::cuda
