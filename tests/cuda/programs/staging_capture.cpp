// Captures in all modes while other threads copy: none of them spoils a capture, and all that they copy is right. And a
// copy that is captured itself: it reads its source when the graph runs.
// harness: stages=both
// harness: passes-on=capturing
#include <thread>

#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kBytes = (size_t{1} << 20) + 100;
constexpr int kRounds = 150;

static std::atomic<bool> done{false};
static std::atomic<int> copies{0}, wrong{0};

// No call of these is one that a capture forbids to other threads, where the driver does not say so.
static void copy_all_the_time(unsigned number, unsigned* block, cudaStream_t stream) {
  std::vector<unsigned char> back(kBytes);
  for (unsigned round = number * 1000000; !done; ++round) {
    std::vector<unsigned char> there = pattern(kBytes, round);
    const bool waits = number == 1;
    NEED(waits ? cudaMemcpy(block, there.data(), kBytes, cudaMemcpyHostToDevice)
               : cudaMemcpyAsync(block, there.data(), kBytes, cudaMemcpyHostToDevice, stream));
    memset(there.data(), 0x55, kBytes);
    NEED(waits ? cudaMemcpy(back.data(), block, kBytes, cudaMemcpyDeviceToHost)
               : cudaMemcpyAsync(back.data(), block, kBytes, cudaMemcpyDeviceToHost, stream));
    wrong += !has_pattern(back.data(), kBytes, round);
    ++copies;
  }
}

static void capture(const char* name, cudaStreamCaptureMode mode, unsigned* target) {
  cudaStream_t stream = new_stream();
  int spoiled = 0, right = 0;
  for (int i = 0; i < kRounds; ++i) {
    usleep(static_cast<unsigned>(i) * 37 % 1500);
    NEED(cudaStreamBeginCapture(stream, mode));
    const cudaError_t launched = launch(stream, 1024, Fill{target, static_cast<unsigned>(i)});
    if (i % 3 == 0) usleep(1000);
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || launched != cudaSuccess) {
      ++spoiled;
      forget_error();
      continue;
    }
    cudaGraphExec_t run = nullptr;
    NEED(cudaGraphInstantiate(&run, graph, 0));
    NEED(cudaGraphLaunch(run, stream));
    NEED(cudaStreamSynchronize(stream));
    right += contents(target, 4096) == "all " + std::to_string(i);
    NEED(cudaGraphExecDestroy(run));
    NEED(cudaGraphDestroy(graph));
  }
  say("%s: %d captures spoiled, %d of %d graphs right", name, spoiled, right, kRounds);
  NEED(cudaStreamDestroy(stream));
}

// The graph has the addresses of the program's memory.
static void captured_copies() {
  cudaStream_t stream = new_stream();
  unsigned* block = device_block(kBytes);
  std::vector<unsigned char> there = pattern(kBytes, 1), back(kBytes);
  NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  SHOW(cudaMemcpyAsync(block, there.data(), kBytes, cudaMemcpyHostToDevice, stream));
  SHOW(cudaMemcpyAsync(back.data(), block, kBytes, cudaMemcpyDeviceToHost, stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t run = nullptr;
  NEED(cudaStreamEndCapture(stream, &graph));
  NEED(cudaGraphInstantiate(&run, graph, 0));
  for (unsigned round : {2u, 3u}) {
    write_pattern(there.data(), kBytes, round);
    NEED(cudaGraphLaunch(run, stream));
    NEED(cudaStreamSynchronize(stream));
    say("the graph copies what is there when it runs: %s", yes_no(has_pattern(back.data(), kBytes, round)));
  }
  NEED(cudaGraphExecDestroy(run));
  NEED(cudaGraphDestroy(graph));
  NEED(cudaFree(block));
  NEED(cudaStreamDestroy(stream));
}

int main() {
  alarm(100);
  NEED(cudaFree(nullptr));
  captured_copies();
  unsigned *target = device_block(4096), *blocks[2] = {device_block(kBytes), device_block(kBytes)};
  cudaStream_t stream = new_stream();
  std::thread first(copy_all_the_time, 1, blocks[0], nullptr), second(copy_all_the_time, 2, blocks[1], stream);
  capture("global", cudaStreamCaptureModeGlobal, target);
  capture("thread-local", cudaStreamCaptureModeThreadLocal, target);
  capture("relaxed", cudaStreamCaptureModeRelaxed, target);
  done = true;
  for (std::thread* thread : {&first, &second}) thread->join();
  say("copies that went wrong: %d", wrong.load());
  NEED(cudaStreamDestroy(stream));
  for (unsigned* block : {target, blocks[0], blocks[1]}) NEED(cudaFree(block));
  return finish();
}
