// Device memory as the pool gives and takes it: what the hooks of cuMemAlloc and cuMemFree call, and the C API. Records
// and lines about misuse name the driver's call either way.
#pragma once
#include "backends/cuda/api.hpp"

namespace cistern::cuda {

// As cuMemAlloc, in the current context: from the pool, unless there is a reason why not (hooks/allocate.cpp).
CUresult allocate_device(CUdeviceptr* pointer, std::size_t bytes);
// As cuMemFree (hooks/free.cpp).
CUresult free_device(CUdeviceptr pointer);
// Of a block from the pool: nothing waits, and it is not given again before all work of its context has ended that was
// there. Other memory is freed as the driver frees it.
CUresult free_device_later(CUdeviceptr pointer);
CUresult free_pinned_later(void* pointer);

// Makes `count` blocks more for the pool to keep, in the current context; no block of the program's is counted. What
// the pool does not serve is refused: kNotSupported.
CUresult reserve_device(std::size_t bytes, std::size_t count);
CUresult reserve_pinned(std::size_t bytes, unsigned flags, std::size_t count);

struct DeviceUse {
  std::uint64_t live_bytes, cached_bytes;
};
DeviceUse use_of_device(int device);

}  // namespace cistern::cuda
