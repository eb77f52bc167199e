// The device is reset while other threads copy. What they hold is gone: their calls fail, none crashes or hangs, and
// what they make anew works until the next reset. What is copied meanwhile nobody knows: a stale address may be
// somebody else's by then. After the last reset all is as on the first day. CUDA forbids a reset while other threads
// use the device, and a real driver follows the handles that it takes away: the plain program crashes there.
// harness: simulator-only
// harness: figures=off
// harness: stages=both
#include <algorithm>
#include <thread>

#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kBytes = (size_t{3} << 20) + 7;
constexpr int kThreads = 3, kResets = 25;

static std::atomic<bool> done{false};
static std::atomic<int> copies{0}, strange{0};

static bool is_expected(cudaError_t code) {
  const cudaError_t expected[] = {cudaSuccess,
                                  cudaErrorInvalidValue,
                                  cudaErrorInvalidResourceHandle,
                                  cudaErrorContextIsDestroyed,
                                  cudaErrorDeviceUninitialized,
                                  cudaErrorInvalidDevicePointer};
  return std::find(std::begin(expected), std::end(expected), code) != std::end(expected);
}

// True: it worked.
static bool judge(const char* call, cudaError_t code) {
  if (!is_expected(code) && ++strange < 5) say("%s: %s", call, name_of(code));
  forget_error();
  return code == cudaSuccess;
}
#define TRY(call) judge(#call, call)

static void copy_until_it_fails(unsigned number) {
  cudaStream_t stream = nullptr;
  void* block = nullptr;
  if (!TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) || !TRY(cudaMalloc(&block, kBytes))) return;
  std::vector<unsigned char> memory = pattern(kBytes, number);
  for (unsigned round = 0; !done; ++round) {
    if (!TRY(cudaMemcpyAsync(block, memory.data(), kBytes, cudaMemcpyHostToDevice, round % 2 ? stream : nullptr)))
      return;
    if (!TRY(cudaMemcpy(block, memory.data(), kBytes, cudaMemcpyHostToDevice))) return;
    if (!TRY(cudaMemcpyAsync(memory.data(), block, kBytes, cudaMemcpyDeviceToHost, stream))) return;
    if (!TRY(cudaMemcpy(memory.data(), block, kBytes, cudaMemcpyDeviceToHost))) return;
    ++copies;
  }
}

int main() {
  alarm(100);
  NEED(cudaFree(nullptr));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i)
    threads.emplace_back([i] {
      while (!done) copy_until_it_fails(i);
    });
  int refused = 0;
  for (int i = 0; i < kResets; ++i) {
    const int copies_before = copies;
    while (copies < copies_before + 2) usleep(500);
    refused += cudaDeviceReset() != cudaSuccess;
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  say("resets refused: %d; strange answers: %d", refused, strange.load());
  SHOW(cudaDeviceReset());
  forget_error();
  unsigned* block = device_block(kBytes);
  --made.device;
  std::vector<unsigned char> there = pattern(kBytes, 9), back(kBytes);
  SHOW(cudaMemcpy(block, there.data(), kBytes, cudaMemcpyHostToDevice));
  SHOW(cudaMemcpy(back.data(), block, kBytes, cudaMemcpyDeviceToHost));
  say("after all: right: %s", yes_no(has_pattern(back.data(), kBytes, 9)));
  SHOW(cudaFree(block));
  return finish();
}
