// The simulated driver's tests share this: a fresh context per test, kernels, settings that are put back.
#pragma once
#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/simcuda/simcuda.h"

// The simple form of every version, which newer headers no longer declare.
extern "C" CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);

// A check on a driver call that says the error's name.
inline std::string name_of(CUresult result) {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return name ? name : std::to_string(static_cast<int>(result));
}
#define EXPECT_CU(expected, call) EXPECT_EQ(name_of(expected), name_of(call)) << #call
#define ASSERT_CU(call) ASSERT_EQ("CUDA_SUCCESS", name_of(call)) << #call

// Each setting is back at its default after the test. A fault loses its context only, unless a test says otherwise.
class Driver : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CU(cuInit(0));
    simcuda_set("fault_loses_device", 0);
    ASSERT_CU(cuCtxCreate_v2(&context, 0, 0));
  }
  void TearDown() override {
    for (const char* setting : {"stream_delay_us", "fail_at", "fail_every", "fail_code", "fault", "teardown",
                                "page_lock_ns", "link_to_device_mbps", "link_to_host_mbps", "copy_engines",
                                "pageable_copy_mbps", "coherent", "coherent_copy_mbps", "file_page_ns"})
      simcuda_set(setting, 0);
    simcuda_set("poison", 1);
    EXPECT_CU(CUDA_SUCCESS, cuCtxDestroy(context));
    EXPECT_EQ(0, simcuda_get("live_allocations"));
    EXPECT_EQ(0, simcuda_get("live_pinned"));
    EXPECT_EQ(0, simcuda_get("live_streams"));
    EXPECT_EQ(0, simcuda_get("live_events"));
  }
  static CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(CUDA_SUCCESS, cuMemAlloc(&pointer, bytes));
    return pointer;
  }
  static void* pin(size_t bytes) {
    void* pointer = nullptr;
    EXPECT_CU(CUDA_SUCCESS, cuMemHostAlloc(&pointer, bytes, 0));
    return pointer;
  }
  static CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream made = nullptr;
    EXPECT_CU(CUDA_SUCCESS, cuStreamCreate(&made, flags));
    return made;
  }
  static CUevent event(unsigned flags = 0) {
    CUevent made = nullptr;
    EXPECT_CU(CUDA_SUCCESS, cuEventCreate(&made, flags));
    return made;
  }
  static size_t free_bytes() {
    size_t bytes = 0, total = 0;
    EXPECT_CU(CUDA_SUCCESS, cuMemGetInfo(&bytes, &total));
    return bytes;
  }
  static unsigned word_at(CUdeviceptr pointer) {
    unsigned value = 0;
    EXPECT_CU(CUDA_SUCCESS, cuMemcpyDtoH(&value, pointer, sizeof value));
    return value;
  }

  CUcontext context = nullptr;
};

// Runs the rest of the test in another process, which was started before any driver call of its own: it execs this
// program with a filter.
inline int run_as_other_process(const char* test, const std::string& argument) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("SIMCUDA_TEST_HANDLE", argument.c_str(), 1);
    const std::string filter = std::string("--gtest_filter=") + test;
    execl("/proc/self/exe", "simcuda_driver_test", filter.c_str(), nullptr);
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The handle that such a process was given; null in an ordinary run.
inline const char* given_handle() { return std::getenv("SIMCUDA_TEST_HANDLE"); }

// The kernel *(unsigned*)pointer = value, in a fresh module.
inline CUfunction store_kernel() {
  static const size_t bytes[] = {sizeof(CUdeviceptr), sizeof(unsigned)};
  simcuda_define(
      "store", reinterpret_cast<const void*>(&bytes),
      [](void** arguments) { **static_cast<unsigned**>(arguments[0]) = *static_cast<unsigned*>(arguments[1]); }, 2,
      bytes);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_CU(CUDA_SUCCESS, cuModuleLoadData(&module, "any image"));
  EXPECT_CU(CUDA_SUCCESS, cuModuleGetFunction(&function, module, "store"));
  return function;
}

inline CUresult launch_store(CUfunction function, CUdeviceptr pointer, unsigned value, CUstream stream) {
  void* arguments[] = {&pointer, &value};
  return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}
