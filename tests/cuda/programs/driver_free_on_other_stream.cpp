// cuMemFreeAsync of a block of one context on a stream of another, whichever of them is current; then the block again,
// an address inside another block, and the null pointer. The neighbours keep their contents.
#include "../driver_program.hpp"

constexpr size_t kBytes = 65536;

int main() {
  const CUdevice device = first_device();
  CUcontext contexts[2];
  CUstream streams[2];
  for (int i : {0, 1}) {
    contexts[i] = new_context(device);
    NEED(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
  }
  for (int round = 0; round < 4; ++round) {
    const int owner = round % 2, other = 1 - owner;
    NEED(cuCtxSetCurrent(contexts[owner]));
    const CUdeviceptr before = device_block(kBytes), block = device_block(kBytes), after = device_block(kBytes);
    NEED(cuMemsetD32(before, 1, kBytes / 4));
    NEED(cuMemsetD32(after, 3, kBytes / 4));
    NEED(cuMemsetD32Async(block, 2, kBytes / 4, streams[owner]));
    NEED(cuStreamSynchronize(streams[owner]));
    NEED(cuCtxSetCurrent(contexts[round < 2 ? owner : other]));
    SHOW(cuMemFreeAsync(after + 256, streams[other]));
    SHOW(cuMemFreeAsync(0, streams[other]));
    const CUresult freed = cuMemFreeAsync(block, streams[other]);
    say("on the stream of another context: %s", name_of(freed));
    NEED(cuStreamSynchronize(streams[other]));
    NEED(cuCtxSetCurrent(contexts[owner]));
    say("%s", freed == CUDA_SUCCESS ? name_of(cuMemFreeAsync(block, streams[owner])) : contents(block, kBytes).c_str());
    const CUdeviceptr next = device_block(kBytes);
    NEED(cuMemsetD32(next, 4, kBytes / 4));
    say("next %s, before %s, after %s", contents(next, kBytes).c_str(), contents(before, kBytes).c_str(),
        contents(after, kBytes).c_str());
    for (const CUdeviceptr one : {before, after, next}) NEED(cuMemFree(one));
    if (freed != CUDA_SUCCESS) SHOW(cuMemFree(block));
  }
  for (int i : {0, 1}) {
    NEED(cuCtxSetCurrent(contexts[i]));
    NEED(cuStreamDestroy(streams[i]));
    NEED(cuCtxDestroy(contexts[i]));
  }
  return finish();
}
