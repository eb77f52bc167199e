// The life of contexts, and each thread's stack of them.
#include "tests/simcuda/driver/context.hpp"

#include <algorithm>
#include <vector>

#include "tests/simcuda/driver/array.hpp"
#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/capture.hpp"
#include "tests/simcuda/driver/event.hpp"
#include "tests/simcuda/driver/kernel.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/pool.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/thread_state.hpp"

namespace simcuda {
namespace {

void free_memory_of(Locked& lock, Context& context) {
  std::vector<Allocation> owned;
  for (const auto& [begin, allocation] : driver().allocations.all())
    if (allocation.context == &context && allocation.kind != MemoryKind::kGraph) owned.push_back(allocation);
  for (const Allocation& allocation : owned) driver().allocations.erase(allocation.begin);
  for (const Allocation& allocation : owned) release_storage(lock, allocation);
  // [assumed] What pools keep of the context's memory goes too.
  release_unused(lock, *context.device);
}

void drop_streams_of(Locked& lock, Context& context) {
  close_stream(lock, context.legacy);
  for (const auto& [thread, stream] : context.per_thread) close_stream(lock, stream);
  for (const StreamPointer& stream : context.created) {
    close_stream(lock, stream);
    driver().streams.erase(reinterpret_cast<CUstream>(stream.get()));
    --counters.live_streams;
  }
  context.legacy = nullptr;
  context.per_thread.clear();
  context.created.clear();
  context.retired.clear();
}

}  // namespace

Context* current_context(CUresult& result) {
  const auto& stack = this_thread().contexts;
  Context* context = stack.empty() ? nullptr : stack.back();
  // [documented] Without a current context: 201; with one that was destroyed: 709.
  result = !context ? CUDA_ERROR_INVALID_CONTEXT : context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return result == CUDA_SUCCESS ? context : nullptr;
}

Context* find_context(Locked&, CUcontext handle) {
  Context* context = reinterpret_cast<Context*>(handle);
  return driver().contexts.contains(context) ? context : nullptr;
}

CUresult start_context(Locked& lock, Context& context, Device& device, unsigned flags) {
  if (const CUresult lost = device.lost) return lost;
  context.device = &device;
  context.flags = flags;
  context.id = ++driver().last_id;
  context.sticky = CUDA_SUCCESS;
  context.legacy = make_stream(lock, context, StreamKind::kLegacy, CU_STREAM_DEFAULT, 0);
  context.peers.clear();
  context.limits.clear();
  context.limit_memory.clear();
  driver().contexts.insert(&context);
  context.alive = true;
  return CUDA_SUCCESS;
}

void end_context(Locked& lock, Context& context) {
  if (!context.alive) return;
  invalidate_captures_of(lock, context);
  // Other threads may enqueue more while this one waits, whose work must not run on.
  for (auto left = unfinished_in(lock, context); !left.empty(); left = unfinished_in(lock, context))
    wait_for(lock, left);
  if (!context.alive) return;  // somebody else was faster meanwhile
  context.alive = false;
  driver().contexts.erase(&context);
  for (Context* other : driver().contexts) other->peers.erase(&context);
  drop_streams_of(lock, context);
  drop_events_of(lock, context);
  drop_modules_of(lock, context);
  drop_arrays_of(lock, context);
  free_memory_of(lock, context);
}

}  // namespace simcuda

using namespace simcuda;

namespace {

CUresult create(CUcontext* handle, unsigned flags, CUdevice ordinal) {
  Locked lock = lock_driver();
  Device* device = find_device(ordinal);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  // Never freed: no other context gets its handle, and work may still name it.
  static auto* const made = new std::vector<Context*>;
  auto* context = made->emplace_back(new Context);
  if (const CUresult lost = start_context(lock, *context, *device, flags)) return lost;  // [assumed] as of a retain
  this_thread().contexts.push_back(context);
  *handle = context->handle();
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  SIMCUDA_CALL(kContextless);
  return create(context, flags, device);
}

extern "C" CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  SIMCUDA_CALL(kContextless);
  return create(context, flags, device);
}

extern "C" CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinities, int count, unsigned flags,
                                   CUdevice device) {
  SIMCUDA_CALL(kContextless);
  if (affinities && count) return refuse("cuCtxCreate_v3 with execution affinity");
  return create(context, flags, device);
}

#if CUDA_VERSION >= 12050
extern "C" CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned flags, CUdevice device) {
  SIMCUDA_CALL(kContextless);
  if (parameters && (parameters->execAffinityParams || parameters->cigParams))
    return refuse("cuCtxCreate_v4 with parameters");
  return create(context, flags, device);
}
#endif

// [documented] A context that is current to the calling thread is popped too.
static CUresult destroy(CUcontext handle) {
  Locked lock = lock_driver();
  Context* context = find_context(lock, handle);
  if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = this_thread().contexts;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  end_context(lock, *context);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxDestroy(CUcontext context) {
  SIMCUDA_CALL(kContextless);
  return destroy(context);
}

extern "C" CUresult cuCtxDestroy_v2(CUcontext context) {
  SIMCUDA_CALL(kContextless);
  return destroy(context);
}

// [documented] The current context, used once more. Flags must be 0.
extern "C" CUresult cuCtxAttach(CUcontext* handle, unsigned flags) {
  SIMCUDA_CALL(kContextless);
  if (!handle || flags) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  ++context->attached;
  *handle = context->handle();
  return CUDA_SUCCESS;
}

// [documented] It must be current, and is destroyed when it is not used any more.
extern "C" CUresult cuCtxDetach(CUcontext handle) {
  SIMCUDA_CALL(kContextless);
  {
    Locked lock = lock_driver();
    CUresult result;
    Context* context = current_context(result);
    if (!context || context->handle() != handle || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->attached) return --context->attached, CUDA_SUCCESS;
  }
  return destroy(handle);
}

static CUresult push_current(CUcontext handle) {
  Locked lock = lock_driver();
  Context* context = find_context(lock, handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  this_thread().contexts.push_back(context);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxPushCurrent(CUcontext context) {
  SIMCUDA_CALL(kContextless);
  return push_current(context);
}

extern "C" CUresult cuCtxPushCurrent_v2(CUcontext context) {
  SIMCUDA_CALL(kContextless);
  return push_current(context);
}

static CUresult pop_current(CUcontext* handle) {
  auto& stack = this_thread().contexts;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle) *handle = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxPopCurrent(CUcontext* context) {
  SIMCUDA_CALL(kContextless);
  return pop_current(context);
}

extern "C" CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  SIMCUDA_CALL(kContextless);
  return pop_current(context);
}

// [documented] Takes the place of the top of the stack; null pops it. [assumed] A primary context that was reset may be
// made current, as runtimes keep its handle: calls answer 709 until it is retained again.
extern "C" CUresult cuCtxSetCurrent(CUcontext handle) {
  SIMCUDA_CALL(kContextless);
  auto& stack = this_thread().contexts;
  if (!stack.empty()) stack.pop_back();
  if (!handle) return CUDA_SUCCESS;
  Locked lock = lock_driver();
  Context* context = find_context(lock, handle);
  for (const auto& device : driver().devices)
    if (device->primary->handle() == handle) context = device->primary;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(context);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxGetCurrent(CUcontext* handle) {
  SIMCUDA_CALL(kContextless);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = this_thread().contexts;
  *handle = stack.empty() ? nullptr : stack.back()->handle();
  return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxGetDevice(CUdevice* device) {
  SIMCUDA_CALL(kContextless);
  CUresult result;
  Context* context = current_context(result);
  if (context) *device = context->device->ordinal;
  return result;
}

extern "C" CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  Context* context = handle ? find_context(lock, handle) : current_context(result);
  if (!context) return result;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxGetFlags(unsigned* flags) {
  SIMCUDA_CALL(kContextless);
  CUresult result;
  if (const Context* context = current_context(result)) *flags = context->flags;
  return result;
}

extern "C" CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  CUresult result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Context* context = handle ? find_context(lock, handle) : current_context(result);
  if (!context) return result;
  *id = context->id;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  if (handle && !find_context(lock, handle)) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

// [documented] Waits for all work of the context. During a capture of any of its streams it is invalid whatever the
// capture's mode, and invalidates the capture.
static CUresult synchronize(Locked& lock, Context& context) {
  if (any_capture() && invalidate_captures_of(lock, context)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  wait_for(lock, unfinished_in(lock, context));
  trim_pools_after_wait(lock);
  return context.sticky;
}

extern "C" CUresult cuCtxSynchronize(void) {
  SIMCUDA_CALL(kUnsafe | kSynchronizes);
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  return context ? synchronize(lock, *context) : result;
}

extern "C" CUresult cuCtxSynchronize_v2(CUcontext handle) {
  SIMCUDA_CALL(kUnsafe | kSynchronizes);
  Locked lock = lock_driver();
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  Context* context = handle ? find_context(lock, handle) : current_context(result);
  return context ? synchronize(lock, *context) : result;
}

extern "C" CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  SIMCUDA_CALL(kOrdinary);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}
