// The same questions to the CUDA runtime: fresh threads, zero sizes, last errors, faults, capture, reset, fork, exit,
// and what its calls cost. Linked with the shared or the static runtime; kernels go through the driver.
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "driver.hpp"
#include "probe.hpp"
#include "series.hpp"

namespace probe {
namespace {

std::string name(cudaError_t result) { return code_name(static_cast<int>(result)); }

void prepare(cudaError_t result, const char* step) { must(static_cast<CUresult>(result), step); }
#define PROBE_PREPARE(call) prepare((call), #call)

std::string null_or_not(cudaError_t result, void* pointer) {
  return name(result) + (pointer == nullptr ? " null" : " pointer");
}

void* const kUntouched = reinterpret_cast<void*>(1);

void run_fresh_thread() {
  void* pointer = nullptr;
  CUcontext in_main = nullptr, in_thread = nullptr;
  std::thread([&] {
    answer("runtime.thread.cudaMalloc_as_the_first_call", name(cudaMalloc(&pointer, 4096)));
    driver().cuCtxGetCurrent(&in_thread);
  }).join();
  driver().cuCtxGetCurrent(&in_main);
  answer("runtime.thread.context_current_in_the_thread", yes_or_no(in_thread != nullptr));
  answer("runtime.thread.context_current_in_main_before_its_first_call", yes_or_no(in_main != nullptr));
  std::thread([&] { answer("runtime.thread.cudaFree_in_a_fresh_thread", name(cudaFree(pointer))); }).join();
  CUcontext own = nullptr, of_block = nullptr;
  PROBE_MUST(driver().create_context(&own, 0, 0));
  answer("runtime.thread.cudaMalloc_with_an_own_context", name(cudaMalloc(&pointer, 4096)));
  PROBE_MUST(
      driver().cuPointerGetAttribute(&of_block, CU_POINTER_ATTRIBUTE_CONTEXT, reinterpret_cast<CUdeviceptr>(pointer)));
  answer("runtime.thread.the_block_is_the_own_contexts", yes_or_no(of_block == own));
}

void run_sizes() {
  void* pointer = kUntouched;
  size_t pitch = 0;
  cudaError_t result = cudaMalloc(&pointer, 0);
  answer("runtime.size.cudaMalloc_0", null_or_not(result, pointer));
  result = cudaMallocHost(&(pointer = kUntouched), 0);
  answer("runtime.size.cudaMallocHost_0", null_or_not(result, pointer));
  result = cudaHostAlloc(&(pointer = kUntouched), 0, cudaHostAllocPortable);
  answer("runtime.size.cudaHostAlloc_0", null_or_not(result, pointer));
  answer("runtime.size.cudaMallocManaged_0", name(cudaMallocManaged(&pointer, 0, cudaMemAttachGlobal)));
  answer("runtime.size.cudaMallocPitch_0", name(cudaMallocPitch(&pointer, &pitch, 0, 4)));
  answer("runtime.size.cudaMallocAsync_0", name(cudaMallocAsync(&pointer, 0, nullptr)));
  cudaGetLastError();
  answer("runtime.size.cudaFree_null", name(cudaFree(nullptr)));
  answer("runtime.size.cudaFreeHost_null", name(cudaFreeHost(nullptr)));
  answer("runtime.size.cudaMalloc_null_argument", name(cudaMalloc(nullptr, 4096)));
  void* host_pointer = nullptr;
  unsigned flags = 0;
  PROBE_PREPARE(cudaMallocHost(&host_pointer, 4096));
  PROBE_PREPARE(cudaHostGetFlags(&flags, host_pointer));
  answer("runtime.size.flags_by_cudaMallocHost", std::to_string(flags));
}

void run_errors() {
  void *block = nullptr, *managed = nullptr, *pooled = nullptr, *host_block = nullptr;
  PROBE_PREPARE(cudaMalloc(&block, 4096));
  PROBE_PREPARE(cudaMallocHost(&host_block, 4096));
  void* pointer = nullptr;
  answer("runtime.error.cudaMalloc_huge", name(cudaMalloc(&pointer, size_t{1} << 50)));
  answer("runtime.error.peek", name(cudaPeekAtLastError()));
  answer("runtime.error.get", name(cudaGetLastError()));
  answer("runtime.error.get_again", name(cudaGetLastError()));
  CUdeviceptr address = 0;
  driver().cuMemAlloc(&address, size_t{1} << 50);
  answer("runtime.error.after_a_failing_driver_call", name(cudaGetLastError()));
  answer("runtime.error.cudaFree_interior", name(cudaFree(static_cast<char*>(block) + 512)));
  answer("runtime.error.last_error_after_it", name(cudaGetLastError()));
  answer("runtime.error.cudaFree_good", name(cudaFree(block)));
  answer("runtime.error.cudaFree_twice", name(cudaFree(block)));
  answer("runtime.error.cudaFree_pinned", name(cudaFree(host_block)));
  static char pageable[4096];
  answer("runtime.error.cudaFree_pageable", name(cudaFree(pageable)));
  answer("runtime.error.cudaFreeHost_pageable", name(cudaFreeHost(pageable)));
  PROBE_PREPARE(cudaMalloc(&block, 4096));
  answer("runtime.error.cudaFreeHost_device", name(cudaFreeHost(block)));
  cudaGetLastError();
  PROBE_PREPARE(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
  answer("runtime.error.cudaFree_managed", name(cudaFree(managed)));
  PROBE_PREPARE(cudaMallocAsync(&pooled, 4096, nullptr));
  answer("runtime.error.cudaFree_pooled", name(cudaFree(pooled)));
  answer("runtime.error.cudaFreeAsync_block", name(cudaFreeAsync(block, nullptr)));
  const auto type_of = [](const void* asked) {
    cudaPointerAttributes attributes{};
    const cudaError_t result = cudaPointerGetAttributes(&attributes, asked);
    return name(result) + " type " + std::to_string(static_cast<int>(attributes.type));
  };
  PROBE_PREPARE(cudaMalloc(&block, 4096));
  answer("runtime.attributes.device", type_of(block));
  answer("runtime.attributes.device_interior", type_of(static_cast<char*>(block) + 100));
  answer("runtime.attributes.pinned", type_of(host_block));
  answer("runtime.attributes.pageable", type_of(pageable));
  PROBE_PREPARE(cudaFree(block));
  answer("runtime.attributes.freed", type_of(block));
}

void run_fault() {
  void *pointer = nullptr, *block = nullptr;
  PROBE_PREPARE(cudaMalloc(&block, 4096));
  cause_fault(nullptr);
  answer("runtime.fault.cudaDeviceSynchronize", name(cudaDeviceSynchronize()));
  answer("runtime.fault.cudaMalloc", name(cudaMalloc(&pointer, 4096)));
  std::thread([&] { answer("runtime.fault.cudaMalloc_in_a_fresh_thread", name(cudaMalloc(&pointer, 4096))); }).join();
  answer("runtime.fault.cudaMallocHost", name(cudaMallocHost(&pointer, 4096)));
  answer("runtime.fault.cudaFree", name(cudaFree(block)));
  answer("runtime.fault.cudaFree_null", name(cudaFree(nullptr)));
  answer("runtime.fault.cudaGetLastError", name(cudaGetLastError()));
  answer("runtime.fault.cudaGetLastError_again", name(cudaGetLastError()));
  answer("runtime.fault.cudaDeviceReset", name(cudaDeviceReset()));
  answer("runtime.fault.cudaMalloc_after_reset", name(cudaMalloc(&pointer, 4096)));
}

void run_capture() {
  cudaStream_t stream = nullptr;
  PROBE_PREPARE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const bool relaxed : {false, true}) {
    const std::string prefix = relaxed ? "runtime.capture.relaxed." : "runtime.capture.global.";
    void *pointer = nullptr, *block = nullptr;
    cudaGraph_t graph = nullptr;
    PROBE_PREPARE(cudaMalloc(&block, 4096));
    const auto begin = [&] {
      PROBE_PREPARE(
          cudaStreamBeginCapture(stream, relaxed ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal));
    };
    begin();
    answer(prefix + "cudaMalloc", name(cudaMalloc(&pointer, 4096)));
    answer(prefix + "last_error", name(cudaGetLastError()));
    answer(prefix + "end_after_cudaMalloc", name(cudaStreamEndCapture(stream, &graph)));
    cudaGetLastError();
    begin();
    answer(prefix + "cudaFree", name(cudaFree(block)));
    answer(prefix + "end_after_cudaFree", name(cudaStreamEndCapture(stream, &graph)));
    cudaGetLastError();
    begin();
    answer(prefix + "cudaFree_null", name(cudaFree(nullptr)));
    answer(prefix + "end_after_cudaFree_null", name(cudaStreamEndCapture(stream, &graph)));
    cudaGetLastError();
  }
}

void run_reset() {
  void* block = nullptr;
  CUcontext before = nullptr, after = nullptr;
  PROBE_PREPARE(cudaMalloc(&block, 4096));
  PROBE_MUST(driver().cuCtxGetCurrent(&before));
  answer("runtime.reset.cudaDeviceReset", name(cudaDeviceReset()));
  answer("runtime.reset.free_of_an_old_block", name(cudaFree(block)));
  cudaGetLastError();
  answer("runtime.reset.cudaMalloc", name(cudaMalloc(&block, 4096)));
  PROBE_MUST(driver().cuCtxGetCurrent(&after));
  answer("runtime.reset.same_context_handle", yes_or_no(before == after));
}

void run_fork() {
  void *block = nullptr, *pointer = nullptr;
  PROBE_PREPARE(cudaMalloc(&block, 4096));
  const pid_t child = fork();
  if (child == 0) {
    answer("runtime.fork.child.cudaMalloc", name(cudaMalloc(&pointer, 4096)));
    answer("runtime.fork.child.cudaFree", name(cudaFree(block)));
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  answer("runtime.fork.child_ended", status == 0 ? "normally" : "status " + std::to_string(status));
}

void* kept_block;
bool answer_in_destructor;

void answer_at_exit(const std::string& prefix) {
  void* pointer = nullptr;
  answer(prefix + "cudaFree", name(cudaFree(kept_block)));
  answer(prefix + "cudaMalloc", name(cudaMalloc(&pointer, 4096)));
}

void run_exit() {
  std::atexit([] { answer_at_exit("runtime.exit.handler_before_the_first_call."); });
  PROBE_PREPARE(cudaMalloc(&kept_block, 4096));
}

void run_exit_destructor() {
  PROBE_PREPARE(cudaMalloc(&kept_block, 4096));
  answer_in_destructor = true;
}

__attribute__((destructor)) void at_the_programs_end() {
  if (answer_in_destructor) answer_at_exit("runtime.exit.destructor_of_the_program.");
}

void run_cost() {
  PROBE_PREPARE(cudaFree(nullptr));
  for (const size_t bytes : {size_t{512}, size_t{65536}, size_t{1} << 20, size_t{16} << 20, size_t{256} << 20}) {
    void* pointer = nullptr;
    pair_cost(
        "cudaMalloc", "cudaFree", bytes, [&] { return cudaMalloc(&pointer, bytes) == cudaSuccess; },
        [&] { cudaFree(pointer); });
    pair_cost(
        "cudaMallocHost", "cudaFreeHost", bytes, [&] { return cudaMallocHost(&pointer, bytes) == cudaSuccess; },
        [&] { cudaFreeHost(pointer); });
  }
  void* block = nullptr;
  size_t first = 0, second = 0;
  cudaPointerAttributes attributes{};
  PROBE_PREPARE(cudaMalloc(&block, 4096));
  call_cost("cudaDeviceSynchronize (idle)", [&] { cudaDeviceSynchronize(); });
  call_cost("cudaMemGetInfo", [&] { cudaMemGetInfo(&first, &second); });
  call_cost("cudaPointerGetAttributes", [&] { cudaPointerGetAttributes(&attributes, block); });
  call_cost("cudaFree(NULL)", [&] { cudaFree(nullptr); });
}

const Registration thread_case({"runtime_thread",
                                "the runtime in fresh threads and other contexts",
                                20,
                                {{"runtime.thread.cudaMalloc_as_the_first_call", "ok"},
                                 {"runtime.thread.context_current_in_the_thread", "yes"},
                                 {"runtime.thread.context_current_in_main_before_its_first_call", "no"},
                                 {"runtime.thread.cudaFree_in_a_fresh_thread", "ok"},
                                 {"runtime.thread.cudaMalloc_with_an_own_context", "ok"},
                                 {"runtime.thread.the_block_is_the_own_contexts", "yes"}},
                                run_fresh_thread});
const Registration sizes_case({"runtime_sizes",
                               "zero sizes and null pointers",
                               20,
                               {{"runtime.size.cudaMalloc_0", "ok null"},
                                {"runtime.size.cudaMallocHost_0", "ok null"},
                                {"runtime.size.cudaHostAlloc_0", "ok null"},
                                {"runtime.size.cudaMallocManaged_0", "ok"},
                                {"runtime.size.cudaMallocPitch_0", "ok"},
                                {"runtime.size.cudaMallocAsync_0", "ok"},
                                {"runtime.size.cudaFree_null", "ok"},
                                {"runtime.size.cudaFreeHost_null", "ok"},
                                {"runtime.size.cudaMalloc_null_argument", "invalid_value"},
                                {"runtime.size.flags_by_cudaMallocHost", "2"}},
                               run_sizes});
const Registration errors_case({"runtime_errors",
                                "the last error, wrong frees and pointer types",
                                20,
                                {{"runtime.error.cudaMalloc_huge", "out_of_memory"},
                                 {"runtime.error.peek", "out_of_memory"},
                                 {"runtime.error.get", "out_of_memory"},
                                 {"runtime.error.get_again", "ok"},
                                 {"runtime.error.after_a_failing_driver_call", "ok"},
                                 {"runtime.error.cudaFree_interior", "invalid_value"},
                                 {"runtime.error.last_error_after_it", "invalid_value"},
                                 {"runtime.error.cudaFree_good", "ok"},
                                 {"runtime.error.cudaFree_twice", "invalid_value"},
                                 {"runtime.error.cudaFree_pinned", "invalid_value"},
                                 {"runtime.error.cudaFree_pageable", "invalid_value"},
                                 {"runtime.error.cudaFreeHost_pageable", "invalid_value"},
                                 {"runtime.error.cudaFreeHost_device", "invalid_value"},
                                 {"runtime.error.cudaFree_managed", "ok"},
                                 {"runtime.error.cudaFree_pooled", "ok"},
                                 {"runtime.error.cudaFreeAsync_block", "ok"},
                                 {"runtime.attributes.device", "ok type 2"},
                                 {"runtime.attributes.device_interior", "ok type 2"},
                                 {"runtime.attributes.pinned", "ok type 1"},
                                 {"runtime.attributes.pageable", "ok type 0"},
                                 {"runtime.attributes.freed", "ok type 0"}},
                                run_errors});
const Registration fault_case({"runtime_fault",
                               "the runtime after a fault",
                               20,
                               {{"runtime.fault.cudaDeviceSynchronize", "illegal_address"},
                                {"runtime.fault.cudaMalloc", "illegal_address"},
                                {"runtime.fault.cudaMalloc_in_a_fresh_thread", "illegal_address"},
                                {"runtime.fault.cudaMallocHost", "illegal_address"},
                                {"runtime.fault.cudaFree", "illegal_address"},
                                {"runtime.fault.cudaFree_null", "illegal_address"},
                                {"runtime.fault.cudaGetLastError", "illegal_address"},
                                {"runtime.fault.cudaGetLastError_again", "ok"},
                                {"runtime.fault.cudaDeviceReset", "ok"},
                                {"runtime.fault.cudaMalloc_after_reset", "46"}},
                               run_fault});
const Registration capture_case({"runtime_capture",
                                 "allocating while a stream captures",
                                 20,
                                 {{"runtime.capture.global.cudaMalloc", "capture_unsupported"},
                                  {"runtime.capture.global.last_error", "capture_unsupported"},
                                  {"runtime.capture.global.end_after_cudaMalloc", "capture_invalidated"},
                                  {"runtime.capture.global.cudaFree", "capture_unsupported"},
                                  {"runtime.capture.global.end_after_cudaFree", "capture_invalidated"},
                                  {"runtime.capture.global.cudaFree_null", "capture_unsupported"},
                                  {"runtime.capture.global.end_after_cudaFree_null", "capture_invalidated"},
                                  {"runtime.capture.relaxed.cudaMalloc", "ok"},
                                  {"runtime.capture.relaxed.last_error", "ok"},
                                  {"runtime.capture.relaxed.end_after_cudaMalloc", "ok"},
                                  {"runtime.capture.relaxed.cudaFree", "ok"},
                                  {"runtime.capture.relaxed.end_after_cudaFree", "ok"},
                                  {"runtime.capture.relaxed.cudaFree_null", "ok"},
                                  {"runtime.capture.relaxed.end_after_cudaFree_null", "ok"}},
                                 run_capture});
const Registration reset_case({"runtime_reset",
                               "cudaDeviceReset",
                               20,
                               {{"runtime.reset.cudaDeviceReset", "ok"},
                                {"runtime.reset.free_of_an_old_block", "invalid_value"},
                                {"runtime.reset.cudaMalloc", "ok"},
                                {"runtime.reset.same_context_handle", "yes"}},
                               run_reset});
const Registration fork_case({"runtime_fork",
                              "the runtime in a forked child",
                              20,
                              {{"runtime.fork.child.cudaMalloc", "not_initialized"},
                               {"runtime.fork.child.cudaFree", "not_initialized"},
                               {"runtime.fork.child_ended", "normally"}},
                              run_fork});
const Registration exit_case({"runtime_exit",
                              "the runtime in an exit handler older than its first call",
                              20,
                              {{"runtime.exit.handler_before_the_first_call.cudaFree", "deinitialized"},
                               {"runtime.exit.handler_before_the_first_call.cudaMalloc", "deinitialized"}},
                              run_exit});
const Registration destructor_case({"runtime_exit_destructor",
                                    "the runtime in a destructor of the program",
                                    20,
                                    {{"runtime.exit.destructor_of_the_program.cudaFree", "deinitialized"},
                                     {"runtime.exit.destructor_of_the_program.cudaMalloc", "deinitialized"}},
                                    run_exit_destructor});
const Registration cost_case({"runtime_cost", "what the runtime's calls cost", 30, {}, run_cost});

}  // namespace
}  // namespace probe
