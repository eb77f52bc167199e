// What the programs on the driver API share. Kernels are found by name in a module: PTX text for a real driver, and
// for the simulated one the host function of the same name.
#pragma once
#include <cuda.h>

#include "say.hpp"
#include "tests/simcuda/simcuda.h"

inline const char* name_of(CUresult code) {
  const char* name = nullptr;
  return cuGetErrorName(code, &name) == CUDA_SUCCESS ? name : "an unknown error";
}

#define SHOW(call) say("%s: %s", #call, name_of(call))
#define SHOW_MADE(kind, call)              \
  do {                                     \
    const CUresult code = call;            \
    if (code == CUDA_SUCCESS) ++made.kind; \
    say("%s: %s", #call, name_of(code));   \
  } while (0)
#define NEED(call)                                                           \
  do {                                                                       \
    const CUresult code = call;                                              \
    if (code != CUDA_SUCCESS) {                                              \
      say("line %d: set-up failed: %s: %s", __LINE__, #call, name_of(code)); \
      exit(90);                                                              \
    }                                                                        \
  } while (0)

// `fill_words(data, value)`: one block of 256 threads for each 256 words.
inline constexpr const char* kFillModule = R"(
.version 6.3
.target sm_75
.address_size 64
.visible .entry fill_words(.param .u64 data, .param .u32 value)
{
  .reg .b32 %r<5>;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [data];
  ld.param.u32 %r0, [value];
  cvta.to.global.u64 %d1, %d0;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %d2, %r4, 4;
  add.u64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r0;
  ret;
}
)";

// The simulator runs a kernel as one call, whatever the grid, so the count of words travels beside the arguments.
inline std::atomic<size_t> fill_words_count{0};
inline void fill_words_on_host(void** arguments) {
  unsigned* data = *static_cast<unsigned**>(arguments[0]);
  const unsigned value = *static_cast<unsigned*>(arguments[1]);
  for (size_t i = 0; i < fill_words_count; ++i) data[i] = value;
}
inline void define_fill_words() {
  static const size_t argument_bytes[] = {sizeof(CUdeviceptr), sizeof(unsigned)};
  simcuda_define("fill_words", nullptr, &fill_words_on_host, 2, argument_bytes);
}

class FillKernel {
 public:
  FillKernel() {
    define_fill_words();
    NEED(cuModuleLoadData(&module_, kFillModule));
    NEED(cuModuleGetFunction(&function_, module_, "fill_words"));
  }
  // `words` is a multiple of 256 and the same in every launch that is pending.
  CUresult operator()(CUstream stream, CUdeviceptr data, size_t words, unsigned value) const {
    fill_words_count = words;
    void* arguments[] = {&data, &value};
    return cuLaunchKernel(function_, static_cast<unsigned>(words / 256), 1, 1, 256, 1, 1, 0, stream, arguments,
                          nullptr);
  }

 private:
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

inline CUdevice first_device() {
  NEED(cuInit(0));
  CUdevice device = 0;
  NEED(cuDeviceGet(&device, 0));
  return device;
}
inline CUcontext new_context(CUdevice device) {
  CUcontext context = nullptr;
  NEED(cuCtxCreate(&context, nullptr, 0, device));
  return context;
}
// The primary context of the first device, current.
inline CUcontext primary_context() {
  const CUdevice device = first_device();
  CUcontext context = nullptr;
  NEED(cuDevicePrimaryCtxRetain(&context, device));
  NEED(cuCtxSetCurrent(context));
  return context;
}

inline CUdeviceptr device_block(size_t bytes) {
  CUdeviceptr block = 0;
  NEED(cuMemAlloc(&block, bytes));
  ++made.device;
  return block;
}

inline std::string contents(CUdeviceptr block, size_t bytes) {
  std::vector<unsigned> words(bytes / sizeof(unsigned));
  const CUresult code = cuMemcpyDtoH(words.data(), block, words.size() * sizeof(unsigned));
  return code == CUDA_SUCCESS ? describe(words) : std::string("read failed: ") + name_of(code);
}
