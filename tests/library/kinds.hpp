// Pools of every kind in tests: contexts to make them in, and a suite that runs once for each. CUDA is the simulated
// driver.
#pragma once
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <cistern/cistern.h>
#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <cistern/place.hpp>
#include <cistern/result.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>

inline constexpr std::size_t kMiB = 1 << 20;
// A sanitizer's malloc serves then.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kHostPoolServes = false;
#else
inline constexpr bool kHostPoolServes = true;
#endif
inline constexpr char kGone[] = "ThreadSanitizer is gone when a thread's heap ends";
#ifdef __SANITIZE_THREAD__
inline constexpr bool kEndsEarly = true;
#else
inline constexpr bool kEndsEarly = false;
#endif

// A thread; one that ThreadSanitizer looks at does not end, but waits for ever when it is done.
class Beside {
 public:
  template <class Work>
  explicit Beside(Work work)
      : thread_([work = std::move(work), this]() mutable {
          work();
          done_.release();
          while (kEndsEarly) pause();
        }) {}
  Beside(Beside&&) = delete;
  ~Beside() {
    if (thread_.joinable()) join();
  }
  void join() {
    done_.acquire();
    if (kEndsEarly)
      thread_.detach();
    else
      thread_.join();
  }

 private:
  std::binary_semaphore done_{0};
  std::thread thread_;
};

inline cl_context opencl_context() {
  static cl_context context = nullptr;
  if (context) return context;
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  if (clGetPlatformIDs(1, &platform, nullptr) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr))
    return nullptr;
  context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  struct GivesBack : testing::Environment {
    void TearDown() override {
      cistern_opencl_forget_context(context);
      clReleaseContext(context);
    }
  };
  testing::AddGlobalTestEnvironment(new GivesBack);
  return context;
}

inline bool make_cuda_current() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return false;
  const auto find = [driver]<class Function>(Function*, const char* name) {
    return reinterpret_cast<Function*>(dlsym(driver, name));
  };
  auto* const initialise = find(static_cast<CUresult (*)(unsigned)>(nullptr), "cuInit");
  auto* const retain = find(static_cast<CUresult (*)(CUcontext*, CUdevice)>(nullptr), "cuDevicePrimaryCtxRetain");
  auto* const set_current = find(static_cast<CUresult (*)(CUcontext)>(nullptr), "cuCtxSetCurrent");
  CUcontext context = nullptr;
  return initialise && !initialise(0) && !retain(&context, 0) && !set_current(context);
}

inline void demand(cistern_status status) {
  if (status == CISTERN_OK) return;
  fprintf(stderr, "%s, the driver's %d\n", cistern_status_text(status), cistern_native_error());
  std::abort();
}

class PoolTest : public testing::TestWithParam<cistern_kind> {
 protected:
  void SetUp() override {
    const bool is_cuda = GetParam() != CISTERN_HOST && GetParam() != CISTERN_OPENCL;
    if (is_cuda && !make_cuda_current()) GTEST_SKIP() << "no simulated driver";
    if (GetParam() == CISTERN_OPENCL) ASSERT_TRUE(opencl_context());
  }
  static cistern_pool_settings settings(const char* name, std::size_t bytes_max = 0) {
    cistern_pool_settings of{};
    of.struct_bytes = sizeof of;
    of.name = name;
    of.kind = GetParam();
    of.bytes_max = bytes_max;
    if (GetParam() == CISTERN_OPENCL) of.context = opencl_context(), of.flags = CL_MEM_READ_WRITE;
    if (cuts_segments()) of.memory = CISTERN_SEGMENTS;
    return of;
  }
  // Each pool of the suite has segments of its own: a second run of the same suite (CMakeLists.txt).
  static bool cuts_segments() { return getenv("POOLS_CUT_SEGMENTS"); }
  static cistern_pool* make(const cistern_pool_settings& of) {
    cistern_pool* pool = nullptr;
    EXPECT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
    return pool;
  }
  static cistern_pool_statistics figures(cistern_pool* pool) {
    auto of = cistern::sized<cistern_pool_statistics>();
    EXPECT_EQ(cistern_pool_get_statistics(pool, &of), CISTERN_OK);
    return of;
  }
  static std::string hex(const void* pointer) {
    char text[32];
    snprintf(text, sizeof text, "%p", pointer);
    return text;
  }
  static const char* kind_name() {
    constexpr const char* kNames[] = {"host", "opencl", "device", "pinned", "managed"};
    return kNames[GetParam()];
  }
};

inline std::string name_of_kind(const testing::TestParamInfo<cistern_kind>& kind) {
  constexpr const char* kNames[] = {"Host", "OpenCL", "Device", "Pinned", "Managed"};
  return kNames[kind.param];
}

inline auto every_kind() {
  return testing::Values(CISTERN_HOST, CISTERN_OPENCL, CISTERN_DEVICE, CISTERN_PINNED, CISTERN_MANAGED);
}
