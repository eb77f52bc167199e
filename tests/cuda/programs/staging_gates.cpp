// One thread copies on a stream in a loop. Another one puts something on it that waits for the program, one thing more
// behind it, and opens the gate only then; it is never kept waiting for long. Host functions on the stream see a copy
// whole or not at all.
// harness: stages=both
#include <chrono>
#include <thread>

#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kBytes = size_t{4} << 20, kWords = kBytes / 4;

static std::atomic<long> gate{0};
static void wait_for_gate(void* until) {
  while (gate.load() < reinterpret_cast<long>(until)) usleep(20);
}
struct Gate {
  static constexpr const char* kName = "gate";
  long until;
  ON_BOTH void operator()(size_t) const {
#ifndef __CUDA_ARCH__
    wait_for_gate(reinterpret_cast<void*>(until));
#endif
  }
};

// While it lives, another thread copies there and back.
class Copies {
 public:
  explicit Copies(cudaStream_t stream)
      : thread_([this, stream] {
          std::vector<unsigned> host(kWords, 1);
          while (!done_) {
            NEED(cudaMemcpyAsync(block_, host.data(), kBytes, cudaMemcpyHostToDevice, stream));
            NEED(cudaMemcpyAsync(host.data(), block_, kBytes, cudaMemcpyDeviceToHost, stream));
          }
        }) {}
  ~Copies() {
    done_ = true;
    thread_.join();
    NEED(cudaFree(block_));
  }

 private:
  unsigned* const block_ = device_block(kBytes);
  std::atomic<bool> done_{false};
  std::thread thread_;
};

enum class By { host_function, kernel, event };

static void gates(const char* name, cudaStream_t stream, By by) {
  auto* const small = device_block(4096);
  const cudaStream_t side = new_stream();
  cudaEvent_t event = nullptr;
  NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  int slow = 0;
  {
    const Copies copies(stream);
    for (long round = 1; round <= 60; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      const long until = gate + 1;
      if (by == By::host_function) NEED(cudaLaunchHostFunc(stream, wait_for_gate, reinterpret_cast<void*>(until)));
      if (by == By::kernel) NEED(launch(stream, 1, Gate{until}));
      if (by == By::event) {
        NEED(launch(side, 1, Gate{until}));
        NEED(cudaEventRecord(event, side));
        NEED(cudaStreamWaitEvent(stream, event, 0));
      }
      NEED(launch(stream, 1, Fill{small, static_cast<unsigned>(round)}));
      gate = until;
      slow += std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(400);
      usleep(round % 3 ? 200 : 15'000);
    }
  }
  say("%s: %s", name, slow <= 2 ? "never kept waiting for long" : "KEPT WAITING");
  NEED(cudaDeviceSynchronize());
  NEED(cudaEventDestroy(event));
  NEED(cudaStreamDestroy(side));
  NEED(cudaFree(small));
}

static unsigned* looked_at;
static std::atomic<int> torn{0};
static void look(void*) {
  for (size_t i = 0; i < kWords; i += 1024) torn += looked_at[i] != looked_at[0];
}

static void looks() {
  looked_at = pinned_block(kBytes);
  memset(looked_at, 0, kBytes);
  const cudaStream_t stream = new_stream();
  std::atomic<bool> done{false};
  std::thread copies([&] {
    for (unsigned value = 1; value < 60; ++value) {
      const std::vector<unsigned> source(kWords, value);
      NEED(cudaMemcpyAsync(looked_at, source.data(), kBytes, cudaMemcpyHostToDevice, stream));
      NEED(cudaStreamSynchronize(stream));
    }
    done = true;
  });
  while (!done) {
    NEED(cudaLaunchHostFunc(stream, look, nullptr));
    NEED(cudaStreamSynchronize(stream));
  }
  copies.join();
  say("host functions saw %d torn", torn.load());
  NEED(cudaStreamDestroy(stream));
  NEED(cudaFreeHost(looked_at));
}

// So that some are staged: on a stream that nobody else uses.
static void alone() {
  auto* const block = device_block(kBytes);
  std::vector<unsigned> host(kWords, 5);
  const cudaStream_t stream = new_stream();
  NEED(cudaMemcpyAsync(block, host.data(), kBytes, cudaMemcpyHostToDevice, stream));
  NEED(cudaMemcpyAsync(host.data(), block, kBytes, cudaMemcpyDeviceToHost, stream));
  NEED(cudaStreamDestroy(stream));
  NEED(cudaFree(block));
}

int main() {
  alone();
  const cudaStream_t own = new_stream();
  gates("a host function on the default stream", nullptr, By::host_function);
  gates("a kernel on a stream", own, By::kernel);
  gates("an event of another stream", own, By::event);
  NEED(cudaStreamDestroy(own));
  looks();
  return finish();
}
