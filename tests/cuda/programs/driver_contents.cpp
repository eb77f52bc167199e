// As contents_after_reuse, on the driver API: a block freed while the launch on it is pending; a free without a current
// context, which fails and frees nothing.
// harness: recycles=device
#include "../driver_program.hpp"

constexpr size_t kWords = 16384, kBytes = kWords * 4;

int main() {
  CUcontext context = primary_context();
  FillKernel fill;
  simcuda_set_value("stream_delay_us", 2000);
  CUstream stream = nullptr, other = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < 6; ++round) {
    CUdeviceptr block = device_block(kBytes);
    for (unsigned i = 0; i < 4; ++i) NEED(fill(stream, block, kWords, i));
    if (round % 2) {
      CUcontext popped = nullptr;
      NEED(cuCtxPopCurrent(&popped));
      SHOW(cuMemFree(block));
      NEED(cuCtxPushCurrent(popped));
      SHOW(cuMemFree(block));
      say("the same context: %s", yes_no(popped == context));
    } else {
      SHOW(cuMemFree(block));
    }
    CUdeviceptr next[3];
    for (CUdeviceptr& one : next) NEED(fill(other, one = device_block(kBytes), kWords, 9));
    NEED(cuCtxSynchronize());
    for (CUdeviceptr one : next) say("holds %s", contents(one, kBytes).c_str());
    for (CUdeviceptr one : next) SHOW(cuMemFree(one));
  }
  NEED(cuStreamDestroy(stream));
  NEED(cuStreamDestroy(other));
  return finish();
}
