// Which calls wait for running work: each is timed while a kernel of 300 ms runs. And which streams wait for which.
#include <functional>

#include "driver.hpp"
#include "probe.hpp"

namespace probe {
namespace {

constexpr int kBusyMilliseconds = 300;

std::string waits(const std::function<CUresult()>& call) {
  const uint64_t start = now_nanoseconds();
  const CUresult result = call();
  const bool waited = now_nanoseconds() - start > uint64_t{kBusyMilliseconds} * 1'000'000 / 2;
  const std::string name = result == CUDA_SUCCESS ? "" : name_of(result) + " ";
  return name + (waited ? "waits" : "returns");
}

// The kernels' code is loaded and the stream's first launch done, so that neither is measured.
void warm_up(CUstream stream) {
  keep_busy(stream, 1);
  PROBE_MUST(driver().cuStreamSynchronize(stream));
}

void run_calls() {
  open_device();
  const Driver& call = driver();
  const CUstream stream = create_stream(), other = create_stream();
  warm_up(stream);
  warm_up(other);
  const auto measure = [&](const char* rule, const std::function<CUresult()>& function) {
    PROBE_MUST(call.cuCtxSynchronize());
    keep_busy(stream, kBusyMilliseconds);
    answer(rule, waits(function));
  };
  CUdeviceptr pointer = 0, managed = 0, pooled = 0;
  void* host_pointer = nullptr;
  size_t first = 0, second = 0;
  unsigned long long identity = 0;
  CUevent event = nullptr;
  CUstream created = nullptr;
  const CUdeviceptr small = allocate(4096), large = allocate(64 << 20);
  void* const small_host = allocate_host(4096);
  void* const large_host = allocate_host(64 << 20);
  PROBE_MUST(call.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  PROBE_MUST(call.cuMemAllocAsync(&pooled, 4096, other));
  PROBE_MUST(call.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  measure("waits.cuMemFree_small", [&] { return call.cuMemFree(small); });
  measure("waits.cuMemFree_large", [&] { return call.cuMemFree(large); });
  measure("waits.cuMemFree_managed", [&] { return call.cuMemFree(managed); });
  measure("waits.cuMemFreeHost_small", [&] { return call.cuMemFreeHost(small_host); });
  measure("waits.cuMemFreeHost_large", [&] { return call.cuMemFreeHost(large_host); });
  measure("waits.cuMemFreeAsync_on_an_idle_stream", [&] { return call.cuMemFreeAsync(pooled, other); });
  measure("waits.cuMemFree_refused", [&] { return call.cuMemFree(0x1000); });
  measure("waits.cuMemAlloc_small", [&] { return call.cuMemAlloc(&pointer, 4096); });
  measure("waits.cuMemAlloc_large", [&] { return call.cuMemAlloc(&pointer, 256 << 20); });
  measure("waits.cuMemHostAlloc_small", [&] { return call.cuMemHostAlloc(&host_pointer, 4096, 0); });
  measure("waits.cuMemHostAlloc_large", [&] { return call.cuMemHostAlloc(&host_pointer, 16 << 20, 0); });
  measure("waits.cuMemGetInfo", [&] { return call.cuMemGetInfo(&first, &second); });
  measure("waits.cuPointerGetAttribute",
          [&] { return call.cuPointerGetAttribute(&identity, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer); });
  measure("waits.cuStreamCreate", [&] { return call.cuStreamCreate(&created, CU_STREAM_NON_BLOCKING); });
  measure("waits.cuStreamDestroy", [&] { return call.cuStreamDestroy(created); });
  measure("waits.cuStreamQuery", [&] { return call.cuStreamQuery(stream); });
  measure("waits.cuCtxSynchronize", [&] { return call.cuCtxSynchronize(); });
  PROBE_MUST(call.cuCtxSynchronize());
}

void run_contexts() {
  const CUcontext primary = open_device();
  const CUdeviceptr block = allocate(4096);
  CUcontext own = nullptr;
  PROBE_MUST(driver().create_context(&own, 0, 0));
  const CUstream stream = create_stream();
  warm_up(stream);
  const CUdeviceptr of_busy = allocate(4096);
  keep_busy(stream, kBusyMilliseconds);
  PROBE_MUST(driver().cuCtxSetCurrent(primary));
  answer("waits.cuMemFree_while_another_context_works", waits([&] { return driver().cuMemFree(block); }));
  PROBE_MUST(driver().cuCtxSetCurrent(own));
  PROBE_MUST(driver().cuCtxSynchronize());
  keep_busy(stream, kBusyMilliseconds);
  PROBE_MUST(driver().cuCtxSetCurrent(primary));
  answer("waits.cuMemFree_of_the_working_context_from_another", waits([&] { return driver().cuMemFree(of_busy); }));
  PROBE_MUST(driver().cuCtxSetCurrent(own));
  PROBE_MUST(driver().cuCtxSynchronize());
}

void run_streams() {
  open_device();
  CUevent event = nullptr;
  PROBE_MUST(driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  answer("event.query_before_any_record", name_of(driver().cuEventQuery(event)));
  const CUstream blocking = create_stream(CU_STREAM_DEFAULT), second_blocking = create_stream(CU_STREAM_DEFAULT);
  const CUstream free_running = create_stream();
  for (const CUstream stream : {blocking, second_blocking, free_running}) warm_up(stream);
  const auto ordered = [&](CUstream busy, CUstream asked) {
    PROBE_MUST(driver().cuCtxSynchronize());
    keep_busy(busy, kBusyMilliseconds);
    PROBE_MUST(driver().cuEventRecord(event, asked));
    sleep_milliseconds(kBusyMilliseconds / 3);
    const CUresult result = driver().cuEventQuery(event);
    return result == CUDA_ERROR_NOT_READY ? "waits" : result == CUDA_SUCCESS ? "runs" : name_of(result);
  };
  answer("order.legacy_behind_blocking", ordered(blocking, CU_STREAM_LEGACY));
  answer("order.legacy_behind_non_blocking", ordered(free_running, CU_STREAM_LEGACY));
  answer("order.blocking_behind_legacy", ordered(CU_STREAM_LEGACY, blocking));
  answer("order.non_blocking_behind_legacy", ordered(CU_STREAM_LEGACY, free_running));
  answer("order.blocking_behind_blocking", ordered(blocking, second_blocking));
  answer("order.per_thread_behind_legacy", ordered(CU_STREAM_LEGACY, CU_STREAM_PER_THREAD));
  answer("order.legacy_behind_per_thread", ordered(CU_STREAM_PER_THREAD, CU_STREAM_LEGACY));
  PROBE_MUST(driver().cuCtxSynchronize());
  const CUstream doomed = create_stream();
  warm_up(doomed);
  keep_busy(doomed, kBusyMilliseconds);
  PROBE_MUST(driver().cuEventRecord(event, doomed));
  PROBE_MUST(driver().cuStreamDestroy(doomed));
  answer("event.query_after_its_stream_was_destroyed", name_of(driver().cuEventQuery(event)));
  PROBE_MUST(driver().cuCtxSynchronize());
  answer("event.query_after_the_work_ended", name_of(driver().cuEventQuery(event)));
}

const Registration calls_case({"waits",
                               "which calls wait for running work",
                               30,
                               {{"waits.cuMemFree_small", "waits"},
                                {"waits.cuMemFree_large", "waits"},
                                {"waits.cuMemFree_managed", "waits"},
                                {"waits.cuMemFreeHost_small", "waits"},
                                {"waits.cuMemFreeHost_large", "waits"},
                                {"waits.cuMemFreeAsync_on_an_idle_stream", "returns"},
                                {"waits.cuMemFree_refused", "invalid_value returns"},
                                {"waits.cuMemAlloc_small", "returns"},
                                {"waits.cuMemAlloc_large", "returns"},
                                {"waits.cuMemHostAlloc_small", "returns"},
                                {"waits.cuMemHostAlloc_large", "returns"},
                                {"waits.cuMemGetInfo", "returns"},
                                {"waits.cuPointerGetAttribute", "returns"},
                                {"waits.cuStreamCreate", "returns"},
                                {"waits.cuStreamDestroy", "returns"},
                                {"waits.cuStreamQuery", "not_ready returns"},
                                {"waits.cuCtxSynchronize", "waits"}},
                               run_calls});
const Registration contexts_case({"waits_contexts",
                                  "frees while another context works",
                                  20,
                                  {{"waits.cuMemFree_while_another_context_works", "returns"},
                                   {"waits.cuMemFree_of_the_working_context_from_another", "waits"}},
                                  run_contexts});
const Registration streams_case({"order",
                                 "which streams wait for which",
                                 20,
                                 {{"event.query_before_any_record", "ok"},
                                  {"order.legacy_behind_blocking", "waits"},
                                  {"order.legacy_behind_non_blocking", "runs"},
                                  {"order.blocking_behind_legacy", "waits"},
                                  {"order.non_blocking_behind_legacy", "runs"},
                                  {"order.blocking_behind_blocking", "runs"},
                                  {"order.per_thread_behind_legacy", "waits"},
                                  {"order.legacy_behind_per_thread", "waits"},
                                  {"event.query_after_its_stream_was_destroyed", "not_ready"},
                                  {"event.query_after_the_work_ended", "ok"}},
                                 run_streams});

}  // namespace
}  // namespace probe
