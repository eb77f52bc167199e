// See missing.hpp.
#include "shim/cuda/missing.hpp"

#include "shim/cuda/next.hpp"
#include "shim/process/log.hpp"
#include "shim/process/process.hpp"
#include "shim/staging/copy_accounts.hpp"
#include "stats/sink.hpp"

namespace cistern::cuda {
namespace {

#define CISTERN_NEED(name) \
  if (!driver().name) return #name;

const char* for_pools() {
  CISTERN_NEED(cuCtxGetCurrent)
  CISTERN_NEED(cuCtxGetDevice)
  CISTERN_NEED(cuCtxPushCurrent_v2)
  CISTERN_NEED(cuCtxPopCurrent_v2)
  CISTERN_NEED(cuCtxSynchronize)
  CISTERN_NEED(cuMemFree_v2)
  CISTERN_NEED(cuMemFreeHost)
  return nullptr;
}

const char* for_order() {
  CISTERN_NEED(cuEventCreate)
  CISTERN_NEED(cuEventRecord)
  CISTERN_NEED(cuEventQuery)
  CISTERN_NEED(cuStreamQuery)
  return nullptr;
}

const char* for_ranges() {
  CISTERN_NEED(cuDeviceGetAttribute)
  CISTERN_NEED(cuDeviceTotalMem_v2)
  CISTERN_NEED(cuMemGetAllocationGranularity)
  CISTERN_NEED(cuMemAddressReserve)
  CISTERN_NEED(cuMemAddressFree)
  CISTERN_NEED(cuMemCreate)
  CISTERN_NEED(cuMemMap)
  CISTERN_NEED(cuMemSetAccess)
  CISTERN_NEED(cuMemUnmap)
  CISTERN_NEED(cuMemRelease)
  return nullptr;
}

const char* for_staging() {
  if (const char* const name = for_pools()) return name;
  if (const char* const name = for_order()) return name;
  CISTERN_NEED(cuEventDestroy_v2)
  CISTERN_NEED(cuStreamSynchronize)
  CISTERN_NEED(cuPointerGetAttribute)
  CISTERN_NEED(cuMemGetAddressRange_v2)
  CISTERN_NEED(cuMemHostAlloc)
  CISTERN_NEED(cuMemcpyHtoDAsync_v2)
  CISTERN_NEED(cuMemcpyDtoHAsync_v2)
  CISTERN_NEED(cuMemcpy3DAsync_v2)
  if (staging_mode() == StagingMode::automatic) CISTERN_NEED(cuEventElapsedTime)
  return nullptr;
}

#undef CISTERN_NEED

void say(const char* name, const char* what) {
  StringSink line;
  line.print("the CUDA driver has no {}: {}", name, what);
  warn_later(line.text());
}

}  // namespace

// Where there is no driver yet, nothing of it is missing.
Missing missing_functions() {
  return driver_found() ? Missing{for_pools(), for_order(), for_ranges(), for_staging()} : Missing{};
}

void say_missing(const Missing& missing) {
  if (missing.for_pools) return say(missing.for_pools, "memory is not pooled, and copies are not staged");
  if (missing.for_order && options().device_order == "deferred")
    say(missing.for_order, "frees wait for the device (CISTERN_DEVICE_ORDER=strict)");
  if (missing.for_ranges && options().device_pool == "ranges")
    say(missing.for_ranges, "all device memory is whole allocations (CISTERN_DEVICE_POOL=on)");
  if (missing.for_staging && staging_mode() != StagingMode::off) say(missing.for_staging, "copies are not staged");
}

}  // namespace cistern::cuda
