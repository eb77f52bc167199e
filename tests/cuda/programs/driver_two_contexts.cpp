// Two contexts on one device: a block belongs to the context that was current at its allocation, whichever is current
// at its free. One context is destroyed with blocks live and freed; a new one may get the same handle.
// harness: recycles=device
// harness: dropped=device:8,pinned:8
#include "../driver_program.hpp"

constexpr size_t kBytes = 65536;

static CUcontext context_of(CUdeviceptr block) {
  CUcontext context = nullptr;
  NEED(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block));
  return context;
}

static void side_by_side(CUdevice device) {
  CUcontext contexts[2] = {new_context(device), new_context(device)};
  for (int round = 0; round < 4; ++round) {
    CUdeviceptr blocks[2];
    for (int i : {0, 1}) {
      NEED(cuCtxSetCurrent(contexts[i]));
      blocks[i] = device_block(kBytes);
      NEED(cuMemsetD32(blocks[i], 40 + i, kBytes / 4));
      NEED(cuCtxSynchronize());
    }
    for (int i : {0, 1}) {
      NEED(cuCtxSetCurrent(contexts[i]));
      say("block %d is of its context: %s, holds %s", i, yes_no(context_of(blocks[i]) == contexts[i]),
          contents(blocks[i], kBytes).c_str());
    }
    NEED(cuCtxSetCurrent(contexts[round % 2]));
    for (CUdeviceptr block : blocks) SHOW(cuMemFree(block));
    CUcontext current = nullptr;
    NEED(cuCtxGetCurrent(&current));
    say("the current context is the same: %s", yes_no(current == contexts[round % 2]));
  }
  SHOW(cuCtxDestroy(contexts[0]));
  SHOW(cuCtxDestroy(contexts[1]));
}

static void destroyed_with_blocks(CUdevice device) {
  CUdeviceptr kept = 0;
  for (int round = 0; round < 8; ++round) {
    CUcontext context = new_context(device);
    kept = device_block(kBytes);
    CUdeviceptr freed = device_block(kBytes);
    NEED(cuMemsetD32(kept, round, kBytes / 4));
    NEED(cuMemsetD32(freed, 99, kBytes / 4));
    NEED(cuMemFree(freed));
    void* pinned = nullptr;
    NEED(cuMemHostAlloc(&pinned, 5000, 0));
    ++made.pinned;
    say("kept holds %s", contents(kept, kBytes).c_str());
    SHOW(cuCtxDestroy(context));
    SHOW(cuMemFree(kept));
  }
  CUcontext context = new_context(device);
  SHOW(cuMemFree(kept));
  CUdeviceptr block = device_block(kBytes);
  NEED(cuMemsetD32(block, 5, kBytes / 4));
  say("a new context's block holds %s", contents(block, kBytes).c_str());
  SHOW(cuMemFree(block));
  SHOW(cuCtxDestroy(context));
}

static void primary_released(CUdevice device) {
  for (int round = 0; round < 3; ++round) {
    CUcontext context = nullptr;
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    CUdeviceptr freed = device_block(kBytes);
    NEED(cuMemsetD32(freed, 7, kBytes / 4));
    NEED(cuMemFree(freed));
    CUdeviceptr block = device_block(kBytes);
    NEED(cuMemsetD32(block, 8, kBytes / 4));
    say("primary: %s", contents(block, kBytes).c_str());
    NEED(cuMemFree(block));
    if (round == 1) SHOW(cuDevicePrimaryCtxReset(device));
    SHOW(cuDevicePrimaryCtxRelease(device));
    NEED(cuCtxSetCurrent(nullptr));
    CUdeviceptr none = 0;
    SHOW(cuMemAlloc(&none, kBytes));
  }
}

int main() {
  const CUdevice device = first_device();
  side_by_side(device);
  destroyed_with_blocks(device);
  primary_released(device);
  return finish();
}
