// After a kernel wrote where nothing is: what every later call answers, in this thread and in a fresh one, and whether
// a reset of the primary context heals the process.
#include <thread>

#include "driver.hpp"
#include "probe.hpp"

namespace probe {
namespace {

struct Prepared {
  CUdeviceptr block;
  void* host_block;
  CUstream stream;
  CUevent event;
};

Prepared prepare_and_fault() {
  open_device();
  Prepared made{allocate(4096), allocate_host(4096), create_stream(), nullptr};
  PROBE_MUST(driver().cuEventCreate(&made.event, CU_EVENT_DISABLE_TIMING));
  PROBE_MUST(driver().cuEventRecord(made.event, made.stream));
  PROBE_MUST(driver().cuCtxSynchronize());
  cause_fault(made.stream);
  answer("fault.cuStreamSynchronize", name_of(driver().cuStreamSynchronize(made.stream)));
  return made;
}

void run_calls() {
  const Prepared on = prepare_and_fault();
  const Driver& call = driver();
  CUdeviceptr pointer = 0, base = 0;
  void* host_pointer = nullptr;
  size_t first = 0, second = 0;
  int number = 0;
  unsigned flags = 0;
  unsigned long long identity = 0;
  CUcontext current = nullptr;
  CUdevice device = 0;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  answer("fault.cuCtxSynchronize", name_of(call.cuCtxSynchronize()));
  answer("fault.cuMemAlloc", name_of(call.cuMemAlloc(&pointer, 4096)));
  answer("fault.cuMemHostAlloc", name_of(call.cuMemHostAlloc(&host_pointer, 4096, 0)));
  answer("fault.cuMemAllocManaged", name_of(call.cuMemAllocManaged(&pointer, 4096, CU_MEM_ATTACH_GLOBAL)));
  answer("fault.cuMemAllocAsync", name_of(call.cuMemAllocAsync(&pointer, 4096, on.stream)));
  answer("fault.cuMemGetInfo", name_of(call.cuMemGetInfo(&first, &second)));
  answer("fault.cuMemGetAddressRange", name_of(call.cuMemGetAddressRange(&base, &first, on.block)));
  answer("fault.cuPointerGetAttribute",
         name_of(call.cuPointerGetAttribute(&identity, CU_POINTER_ATTRIBUTE_BUFFER_ID, on.block)));
  answer("fault.cuMemHostGetFlags", name_of(call.cuMemHostGetFlags(&flags, on.host_block)));
  answer("fault.cuStreamQuery", name_of(call.cuStreamQuery(on.stream)));
  answer("fault.cuStreamCreate", name_of(call.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)));
  answer("fault.cuEventCreate", name_of(call.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)));
  answer("fault.cuEventQuery", name_of(call.cuEventQuery(on.event)));
  answer("fault.cuEventRecord", name_of(call.cuEventRecord(on.event, on.stream)));
  answer("fault.cuMemsetD32", name_of(call.cuMemsetD32(on.block, 0, 16)));
  answer("fault.cuCtxGetCurrent", name_of(call.cuCtxGetCurrent(&current)));
  answer("fault.cuCtxGetDevice", name_of(call.cuCtxGetDevice(&device)));
  answer("fault.cuDeviceGetCount", name_of(call.cuDeviceGetCount(&number)));
  std::thread([&] {
    call.cuCtxSetCurrent(current);
    answer("fault.fresh_thread.cuMemAlloc", name_of(call.cuMemAlloc(&pointer, 4096)));
  }).join();
  answer("fault.cuMemFree", name_of(call.cuMemFree(on.block)));
  answer("fault.cuMemFreeHost", name_of(call.cuMemFreeHost(on.host_block)));
}

void run_reset() {
  prepare_and_fault();
  CUdeviceptr pointer = 0;
  CUcontext context = nullptr;
  answer("fault.reset.cuDevicePrimaryCtxReset", name_of(driver().cuDevicePrimaryCtxReset(0)));
  answer("fault.reset.cuDevicePrimaryCtxRetain", name_of(driver().cuDevicePrimaryCtxRetain(&context, 0)));
  answer("fault.reset.cuCtxSetCurrent", name_of(driver().cuCtxSetCurrent(context)));
  answer("fault.reset.cuMemAlloc", name_of(driver().cuMemAlloc(&pointer, 4096)));
}

// A context of its own that faults: does the primary one beside it go on?
void run_other_context() {
  const CUcontext primary = open_device();
  const CUdeviceptr block = allocate(4096);
  CUcontext own = nullptr;
  PROBE_MUST(driver().create_context(&own, 0, 0));
  const CUstream stream = create_stream();
  cause_fault(stream);
  answer("fault.other.faulted_context", name_of(driver().cuStreamSynchronize(stream)));
  PROBE_MUST(driver().cuCtxSetCurrent(primary));
  CUdeviceptr pointer = 0;
  answer("fault.other.cuMemAlloc", name_of(driver().cuMemAlloc(&pointer, 4096)));
  answer("fault.other.cuMemFree", name_of(driver().cuMemFree(block)));
  answer("fault.other.cuCtxDestroy_of_the_faulted", name_of(driver().cuCtxDestroy(own)));
}

const Registration calls_case({"fault_calls",
                               "every later call after a fault",
                               20,
                               {{"fault.cuStreamSynchronize", "illegal_address"},
                                {"fault.cuCtxSynchronize", "illegal_address"},
                                {"fault.cuMemAlloc", "illegal_address"},
                                {"fault.cuMemHostAlloc", "illegal_address"},
                                {"fault.cuMemAllocManaged", "illegal_address"},
                                {"fault.cuMemAllocAsync", "illegal_address"},
                                {"fault.cuMemGetInfo", "illegal_address"},
                                {"fault.cuMemGetAddressRange", "illegal_address"},
                                {"fault.cuPointerGetAttribute", "ok"},
                                {"fault.cuMemHostGetFlags", "illegal_address"},
                                {"fault.cuStreamQuery", "illegal_address"},
                                {"fault.cuStreamCreate", "illegal_address"},
                                {"fault.cuEventCreate", "illegal_address"},
                                {"fault.cuEventQuery", "illegal_address"},
                                {"fault.cuEventRecord", "illegal_address"},
                                {"fault.cuMemsetD32", "illegal_address"},
                                {"fault.cuCtxGetCurrent", "ok"},
                                {"fault.cuCtxGetDevice", "ok"},
                                {"fault.cuDeviceGetCount", "ok"},
                                {"fault.fresh_thread.cuMemAlloc", "illegal_address"},
                                {"fault.cuMemFree", "illegal_address"},
                                {"fault.cuMemFreeHost", "illegal_address"}},
                               run_calls});
const Registration reset_case({"fault_reset",
                               "a reset of the primary context after a fault",
                               20,
                               {{"fault.reset.cuDevicePrimaryCtxReset", "ok"},
                                {"fault.reset.cuDevicePrimaryCtxRetain", "illegal_address"},
                                {"fault.reset.cuCtxSetCurrent", "ok"},
                                {"fault.reset.cuMemAlloc", "invalid_context"}},
                               run_reset});
const Registration other_case({"fault_other_context",
                               "a context beside the one that faulted",
                               20,
                               {{"fault.other.faulted_context", "illegal_address"},
                                {"fault.other.cuMemAlloc", "illegal_address"},
                                {"fault.other.cuMemFree", "illegal_address"},
                                {"fault.other.cuCtxDestroy_of_the_faulted", "ok"}},
                               run_other_context});

}  // namespace
}  // namespace probe
