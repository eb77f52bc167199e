// See next.hpp.
#include "shim/cuda/next.hpp"

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern::cuda {
namespace {

constexpr char kDriverName[] = "libcuda.so.1";

constinit DriverTable the_table{};
constinit Lock resolve_lock;
constinit std::atomic<bool> resolved{false};

void resolve_table(DriverTable& table) {
  const auto resolve = [](auto& member, const char* name) {
    if (!member) member.set(real_symbol(name, kDriverName));
  };
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) resolve(table.name, #name);
#include "shim/symbols/cuda.def"
  resolve(table.cuCtxGetCurrent, "cuCtxGetCurrent");
  resolve(table.cuCtxPushCurrent_v2, "cuCtxPushCurrent_v2");
  resolve(table.cuCtxPopCurrent_v2, "cuCtxPopCurrent_v2");
  resolve(table.cuCtxGetDevice, "cuCtxGetDevice");
  resolve(table.cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState");
  resolve(table.cuStreamIsCapturing, "cuStreamIsCapturing");
  resolve(table.cuStreamGetCtx, "cuStreamGetCtx");
  resolve(table.cuStreamGetCaptureInfo_v2, "cuStreamGetCaptureInfo_v2");
  resolve(table.cuDeviceGetGraphMemAttribute, "cuDeviceGetGraphMemAttribute");
  resolve(table.cuEventElapsedTime, "cuEventElapsedTime");
  resolve(table.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  resolve(table.cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity");
  resolve(table.cuCtxGetId, "cuCtxGetId");
  resolve(table.cuInit, "cuInit");
  resolve(table.cuDeviceGetCount, "cuDeviceGetCount");
  resolve(table.cuDeviceGet, "cuDeviceGet");
  resolve(table.cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer");
  resolve(table.cuCtxDisablePeerAccess, "cuCtxDisablePeerAccess");
  resolve(table.cuCtxSetCurrent, "cuCtxSetCurrent");
}

// The look-ups take the dynamic linker's lock, so ours is not held meanwhile. Threads that race here find the same.
void resolve_driver(Loading loading) {
  Uncounted uncounted;
  if (!real_symbol("cuMemAlloc_v2", kDriverName, loading)) return;  // it may be loaded later
  resolve_table(the_table);
  Locked hold(resolve_lock);
  if (resolved.load(std::memory_order_acquire)) return;
  resolved.store(true, std::memory_order_release);
}

}  // namespace

DriverTable& driver() {
  if (!resolved.load(std::memory_order_acquire)) [[unlikely]]
    resolve_driver(Loading::only_if_loaded);
  return the_table;
}

bool driver_found() { return driver(), resolved.load(std::memory_order_acquire); }

bool load_driver() {
  if (!resolved.load(std::memory_order_acquire)) resolve_driver(Loading::allowed);
  return resolved.load(std::memory_order_acquire);
}

void driver_before_fork() { resolve_lock.lock_for_fork(); }
void driver_after_fork() { resolve_lock.unlock_after_fork(); }

}  // namespace cistern::cuda
