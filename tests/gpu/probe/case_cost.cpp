// What driver calls cost: least and median of many calls, by size where the call has one. Nothing is assumed.
#include <functional>

#include "driver.hpp"
#include "probe.hpp"
#include "series.hpp"

namespace probe {
namespace {

void run_allocations() {
  open_device();
  const Driver& call = driver();
  for (const size_t bytes : {size_t{512}, size_t{4096}, size_t{65536}, size_t{1} << 20, size_t{2} << 20,
                             size_t{16} << 20, size_t{256} << 20}) {
    CUdeviceptr pointer = 0;
    pair_cost(
        "cuMemAlloc", "cuMemFree", bytes, [&] { return call.cuMemAlloc(&pointer, bytes) == CUDA_SUCCESS; },
        [&] { call.cuMemFree(pointer); });
  }
  for (const size_t bytes :
       {size_t{64}, size_t{4096}, size_t{65536}, size_t{1} << 20, size_t{16} << 20, size_t{256} << 20}) {
    void* pointer = nullptr;
    pair_cost(
        "cuMemHostAlloc", "cuMemFreeHost", bytes,
        [&] { return call.cuMemHostAlloc(&pointer, bytes, 0) == CUDA_SUCCESS; }, [&] { call.cuMemFreeHost(pointer); });
  }
  const CUstream stream = create_stream();
  for (const size_t bytes : {size_t{512}, size_t{1} << 20, size_t{256} << 20}) {
    CUdeviceptr pointer = 0;
    pair_cost(
        "cuMemAllocAsync", "cuMemFreeAsync", bytes,
        [&] { return call.cuMemAllocAsync(&pointer, bytes, stream) == CUDA_SUCCESS; },
        [&] { call.cuMemFreeAsync(pointer, stream); });
  }
  for (const size_t bytes : {size_t{4096}, size_t{2} << 20}) {
    CUdeviceptr pointer = 0;
    pair_cost(
        "cuMemAllocManaged", "cuMemFree of managed", bytes,
        [&] { return call.cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS; },
        [&] { call.cuMemFree(pointer); });
  }
}

void run_queries() {
  open_device();
  const Driver& call = driver();
  const CUstream stream = create_stream();
  const CUdeviceptr block = allocate(4096);
  void* const host_block = allocate_host(4096);
  CUevent event = nullptr;
  PROBE_MUST(call.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  PROBE_MUST(call.cuEventRecord(event, stream));
  CUcontext context = nullptr;
  CUdeviceptr base = 0;
  size_t first = 0, second = 0;
  unsigned flags = 0;
  unsigned long long identity = 0;
  CUstreamCaptureStatus status{};
  void* function = nullptr;
  call_cost("cuCtxSynchronize (idle)", [&] { call.cuCtxSynchronize(); });
  call_cost("cuStreamSynchronize (idle)", [&] { call.cuStreamSynchronize(stream); });
  call_cost("cuStreamQuery (idle)", [&] { call.cuStreamQuery(stream); });
  call_cost("cuEventRecord", [&] { call.cuEventRecord(event, stream); });
  call_cost("cuEventQuery", [&] { call.cuEventQuery(event); });
  call_cost("cuEventSynchronize (ended)", [&] { call.cuEventSynchronize(event); });
  call_cost("cuStreamIsCapturing", [&] { call.cuStreamIsCapturing(stream, &status); });
  call_cost("cuCtxGetCurrent", [&] { call.cuCtxGetCurrent(&context); });
  call_cost("cuCtxGetId", [&] { call.cuCtxGetId(context, &identity); });
  call_cost("cuPointerGetAttribute buffer id",
            [&] { call.cuPointerGetAttribute(&identity, CU_POINTER_ATTRIBUTE_BUFFER_ID, block); });
  call_cost("cuPointerGetAttribute context",
            [&] { call.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block); });
  call_cost("cuMemGetAddressRange", [&] { call.cuMemGetAddressRange(&base, &first, block); });
  call_cost("cuMemHostGetFlags", [&] { call.cuMemHostGetFlags(&flags, host_block); });
  call_cost("cuMemGetInfo", [&] { call.cuMemGetInfo(&first, &second); });
  call_cost("cuGetProcAddress", [&] { call.cuGetProcAddress("cuMemAlloc", &function, 3020, 0, nullptr); });
  call_cost("cuEventCreate and cuEventDestroy", [&] {
    CUevent made = nullptr;
    call.cuEventCreate(&made, CU_EVENT_DISABLE_TIMING);
    call.cuEventDestroy(made);
  });
}

const Registration allocations_case({"cost_allocations", "what allocating and freeing cost", 45, {}, run_allocations});
const Registration queries_case({"cost_queries", "what queries cost", 20, {}, run_queries});

}  // namespace
}  // namespace probe
