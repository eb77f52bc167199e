// Green contexts: parts of a primary context, each with some of the device's multiprocessors. Kernels are host
// functions here, so multiprocessors are only counted. A green context has streams of its own, and the memory of the
// primary one.
#include <algorithm>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/settings.hpp"

#if CUDA_VERSION >= 12050
namespace simcuda {
namespace {

// [documented] On compute capability 9.0 a part has 8 multiprocessors at least, and a multiple of 8.
constexpr unsigned kMultiprocessors = 132, kPart = 8;

struct GreenContext {
  Context context;
  CUdevResource resource;
};

struct Description {
  int device;
  CUdevResource resource;
};

// Those alive. Like any Context they are never deleted, because a handle may be used after their end.
std::unordered_set<GreenContext*>& green_contexts() {
  static auto& all = *new std::unordered_set<GreenContext*>;
  return all;
}

// Never freed: the interface has no call for it.
std::unordered_map<CUdevResourceDesc, std::unique_ptr<Description>>& descriptions() {
  static auto& all = *new std::unordered_map<CUdevResourceDesc, std::unique_ptr<Description>>;
  return all;
}

GreenContext* find_green(Locked&, CUgreenCtx handle) {
  auto* const green = reinterpret_cast<GreenContext*>(handle);
  return green_contexts().contains(green) ? green : nullptr;
}

// The device is kept in the bytes that are the driver's own.
CUdevResource part_of(int device, unsigned multiprocessors) {
  CUdevResource resource{};
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  resource._internal_padding[0] = static_cast<unsigned char>(device);
  resource.sm.smCount = multiprocessors;
  return resource;
}

int device_of(const CUdevResource& resource) { return resource._internal_padding[0]; }

CUresult give(CUdevResource* answer, CUdevResourceType type, const CUdevResource& resource) {
  if (!answer) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *answer = resource;
  return CUDA_SUCCESS;
}

CUresult split(CUdevResource* parts, unsigned* count, const CUdevResource& whole, CUdevResource* rest, unsigned least) {
  if (whole.type != CU_DEV_RESOURCE_TYPE_SM || least > whole.sm.smCount) return CUDA_ERROR_INVALID_VALUE;
  const auto size = static_cast<unsigned>(round_up(std::max(least, kPart), kPart));
  const unsigned most = whole.sm.smCount / size, made = parts ? std::min(*count, most) : most;
  *count = made;
  if (parts) std::fill(parts, parts + made, part_of(device_of(whole), size));
  if (rest) *rest = part_of(device_of(whole), whole.sm.smCount - made * size);
  return CUDA_SUCCESS;
}

// [documented] All resources must come from one device.
CUresult describe(CUdevResourceDesc* handle, const CUdevResource* parts, unsigned count) {
  const int device = device_of(parts[0]);
  if (std::any_of(parts, parts + count, [&](const CUdevResource& part) { return device_of(part) != device; }))
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const unsigned sum = std::accumulate(
      parts, parts + count, 0U, [](unsigned before, const CUdevResource& part) { return before + part.sm.smCount; });
  Locked lock = lock_driver();
  auto made = std::make_unique<Description>(Description{device, part_of(device, sum)});
  *handle = reinterpret_cast<CUdevResourceDesc>(made.get());
  descriptions().emplace(*handle, std::move(made));
  return CUDA_SUCCESS;
}

// [documented] It retains the primary context, and is not made current.
CUresult create(CUgreenCtx* handle, CUdevResourceDesc description, CUdevice ordinal) {
  Locked lock = lock_driver();
  Device* device = find_device(ordinal);
  const auto found = descriptions().find(description);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (found == descriptions().end() || found->second->device != ordinal) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult lost = retain_primary(lock, *device)) return lost;
  auto* green = new GreenContext;
  green->resource = found->second->resource;
  green->context.part_of = device->primary;
  device->primary->parts.insert(&green->context);
  start_context(lock, green->context, *device, device->primary_flags);
  green_contexts().insert(green);
  *handle = reinterpret_cast<CUgreenCtx>(green);
  return CUDA_SUCCESS;
}

// [documented] Its streams stay. Every call with them has an error.
void leave_streams(Locked&, Context& context) {
  for (const StreamPointer& stream : context.created) {
    driver().streams.erase(reinterpret_cast<CUstream>(stream.get()));
    driver().detached_streams.insert(reinterpret_cast<CUstream>(stream.get()));
  }
}

// [documented] The context is not independent of the primary one, and only its resources are released: so its memory
// stays.
void leave_memory(Locked&, Context& context) {
  for (auto& [begin, allocation] : driver().allocations.all())
    if (allocation.context == &context) driver().allocations.find(begin)->context = context.part_of;
}

CUresult destroy(CUgreenCtx handle) {
  Locked lock = lock_driver();
  GreenContext* green = find_green(lock, handle);
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  green_contexts().erase(green);
  wait_for(lock, unfinished_in(lock, green->context));
  leave_streams(lock, green->context);
  leave_memory(lock, green->context);
  end_context(lock, green->context);
  green->context.part_of->parts.erase(&green->context);
  release_primary(lock, *green->context.device);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* answer, CUdevResourceType type) {
  SIMCUDA_CALL(kContextless);
  if (!find_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return give(answer, type, part_of(device, kMultiprocessors));
}

extern "C" CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* answer, CUdevResourceType type) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const GreenContext* green = find_green(lock, handle);
  return green ? give(answer, type, green->resource) : CUDA_ERROR_INVALID_CONTEXT;
}

extern "C" CUresult cuDevSmResourceSplitByCount(CUdevResource* parts, unsigned* count, const CUdevResource* whole,
                                                CUdevResource* rest, unsigned flags, unsigned least) {
  SIMCUDA_CALL(kContextless);
  if (flags) return refuse("cuDevSmResourceSplitByCount with flags");
  return count && whole ? split(parts, count, *whole, rest, least) : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* parts, unsigned count) {
  SIMCUDA_CALL(kContextless);
  return description && parts && count ? describe(description, parts, count) : CUDA_ERROR_INVALID_VALUE;
}

// [documented] The flag is required.
extern "C" CUresult cuGreenCtxCreate(CUgreenCtx* handle, CUdevResourceDesc description, CUdevice device,
                                     unsigned flags) {
  SIMCUDA_CALL(kContextless);
  return handle && flags == CU_GREEN_CTX_DEFAULT_STREAM ? create(handle, description, device)
                                                        : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  SIMCUDA_CALL(kContextless);
  return destroy(handle);
}

// [documented] The context is used as any other. [assumed] Each call gives the same one.
extern "C" CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx handle) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  GreenContext* green = find_green(lock, handle);
  if (!context || !green) return CUDA_ERROR_INVALID_VALUE;
  *context = green->context.handle();
  return CUDA_SUCCESS;
}

// [documented] The flag is required.
extern "C" CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx handle, unsigned flags, int priority) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  GreenContext* green = find_green(lock, handle);
  if (!stream || !green || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = create_stream(lock, green->context, flags, priority);
  return CUDA_SUCCESS;
}
#endif
