// A context is destroyed while other threads, to which it is current, copy in it: their calls work until one finds the
// context gone, and that is what it answers. What the last copies brought nobody knows. The next context is as new.
// harness: figures=off
// harness: stages=both
#include <thread>

#include "../driver_program.hpp"
#include "../staging.hpp"

constexpr size_t kBytes = (size_t{3} << 20) + 7;
constexpr int kThreads = 3, kRounds = 12;

static std::atomic<int> copies{0}, strange{0};

static void copy_until_it_fails(CUcontext context, unsigned number) {
  if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return;
  CUdeviceptr block = 0;
  CUresult code = cuMemAlloc(&block, kBytes);
  std::vector<unsigned char> back(kBytes);
  for (unsigned round = number; code == CUDA_SUCCESS; ++round) {
    std::vector<unsigned char> there = pattern(kBytes, round);
    code = round % 2 ? cuMemcpyHtoD(block, there.data(), kBytes)
                     : cuMemcpyHtoDAsync(block, there.data(), kBytes, CU_STREAM_PER_THREAD);
    memset(there.data(), 0x55, kBytes);
    if (code == CUDA_SUCCESS)
      code = round % 2 ? cuMemcpyDtoH(back.data(), block, kBytes)
                       : cuMemcpyDtoHAsync(back.data(), block, kBytes, CU_STREAM_PER_THREAD);
    copies += code == CUDA_SUCCESS;
  }
  const bool expected = code == CUDA_ERROR_CONTEXT_IS_DESTROYED || code == CUDA_ERROR_INVALID_VALUE;
  if (!expected && ++strange < 5) say("a copy ended with %s", name_of(code));
}

int main() {
  alarm(100);
  const CUdevice device = first_device();
  for (int round = 0; round < kRounds; ++round) {
    CUcontext context = new_context(device);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(copy_until_it_fails, context, i * 1000);
    const int copies_before = copies;
    while (copies < copies_before + 3) usleep(300);
    if (cuCtxDestroy(context) != CUDA_SUCCESS) say("a context stays");
    for (std::thread& thread : threads) thread.join();
  }
  say("strange answers: %d", strange.load());
  CUcontext context = new_context(device);
  CUdeviceptr block = 0;
  NEED(cuMemAlloc(&block, kBytes));
  std::vector<unsigned char> there = pattern(kBytes, 9), back(kBytes);
  SHOW(cuMemcpyHtoD(block, there.data(), kBytes));
  SHOW(cuMemcpyDtoH(back.data(), block, kBytes));
  say("after all: right: %s", yes_no(has_pattern(back.data(), kBytes, 9)));
  SHOW(cuMemFree(block));
  SHOW(cuCtxDestroy(context));
  return finish();
}
