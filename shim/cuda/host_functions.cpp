// See host_functions.hpp.
#include "shim/cuda/host_functions.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <unordered_map>
#include <utility>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"

namespace cistern::cuda {
namespace {

class InHostFunction {
 public:
  InHostFunction() { in_host_function = true; }
  ~InHostFunction() { in_host_function = false; }
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
};

template <class Function>
Function* remember(const Function& function) {
  return new (internal_allocate(sizeof(Function))) Function(function);
}
template <class Function>
Function forget(void* remembered) {
  const Function function = *static_cast<Function*>(remembered);
  internal_deallocate(remembered, sizeof(Function));
  return function;
}

void run_and_forget(void* remembered) {
  const auto host = forget<CUDA_HOST_NODE_PARAMS>(remembered);
  const InHostFunction here;
  host.function(host.argument);
}
void call_back_and_forget(CUstream stream, CUresult status, void* remembered) {
  const auto callback = forget<StreamCallback>(remembered);
  const InHostFunction here;
  callback.function(stream, status, callback.argument);
}
void run(void* kept) {
  const auto host = *static_cast<const CUDA_HOST_NODE_PARAMS*>(kept);
  const InHostFunction here;
  host.function(host.argument);
}

struct SameHost {
  std::size_t operator()(const CUDA_HOST_NODE_PARAMS& host) const {
    const auto argument = reinterpret_cast<std::uintptr_t>(host.argument) * 0x9E3779B97F4A7C15ull;
    return argument ^ argument >> 29 ^ reinterpret_cast<std::uintptr_t>(host.function);
  }
  bool operator()(const CUDA_HOST_NODE_PARAMS& a, const CUDA_HOST_NODE_PARAMS& b) const {
    return a.function == b.function && a.argument == b.argument;
  }
};
// How many calls that succeeded or are in flight put each into a graph. Never torn down: graphs may run to the end of
// the process.
using Kept = std::unordered_map<CUDA_HOST_NODE_PARAMS, std::uint64_t, SameHost, SameHost,
                                InternalAllocator<std::pair<const CUDA_HOST_NODE_PARAMS, std::uint64_t>>>;
constinit Lock kept_lock;
constinit Kept* kept = nullptr;

}  // namespace

CUDA_HOST_NODE_PARAMS run_once(const CUDA_HOST_NODE_PARAMS& host) {
  if (!host.function) return host;
  return {run_and_forget, remember(host)};
}
void dropped(const CUDA_HOST_NODE_PARAMS& ours) {
  if (ours.function == run_and_forget) forget<CUDA_HOST_NODE_PARAMS>(ours.argument);
  if (ours.function != run) return;
  Locked hold(kept_lock);
  const auto found = kept->find(*static_cast<const CUDA_HOST_NODE_PARAMS*>(ours.argument));
  if (!--found->second) kept->erase(found);
}

StreamCallback run_once(const StreamCallback& callback) {
  if (!callback.function) return callback;
  return {call_back_and_forget, remember(callback)};
}
void dropped(const StreamCallback& run_once) {
  if (run_once.function == call_back_and_forget) forget<StreamCallback>(run_once.argument);
}

CUDA_HOST_NODE_PARAMS run_by_graph(const CUDA_HOST_NODE_PARAMS& host) {
  if (!host.function) return host;
  Locked hold(kept_lock);
  if (!kept) kept = new (internal_allocate(sizeof(Kept))) Kept;
  auto found = kept->find(host);
  if (found == kept->end()) {
    if (kept->size() >= kKeptForGraphsMax) return host;
    found = kept->emplace(host, 0).first;
  }
  ++found->second;
  return {run, const_cast<CUDA_HOST_NODE_PARAMS*>(&found->first)};
}

CUDA_HOST_NODE_PARAMS as_passed(const CUDA_HOST_NODE_PARAMS& of_node) {
  return of_node.function == run ? *static_cast<const CUDA_HOST_NODE_PARAMS*>(of_node.argument) : of_node;
}

void host_functions_before_fork() { kept_lock.lock_for_fork(); }
void host_functions_after_fork() { kept_lock.unlock_after_fork(); }

}  // namespace cistern::cuda
