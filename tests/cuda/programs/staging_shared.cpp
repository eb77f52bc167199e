// Several threads use one stream: to the others a copy is one command, whole or not there, whether it is the default
// stream or one of the program's, and whether they copy, launch or set memory. A thread with a stream of its own is not
// kept waiting by a copy on the default one when its stream does not block. On a busy machine every copy may meet
// another thread's command on its stream, and is left to the driver.
#include <thread>

#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kBytes = size_t{6} << 20, kWords = kBytes / 4;
constexpr int kRounds = 25;

static std::atomic<int> torn{0};

static bool is_one(const std::vector<unsigned>& words) {
  return std::all_of(words.begin(), words.end(), [&](unsigned word) { return word == words[0]; });
}

class SharedStream {
 public:
  SharedStream(cudaStream_t copies, cudaStream_t launches) : copies_(copies), launches_(launches) {}

  void run() {
    NEED(cudaMemset(block_, 0, kBytes));
    NEED(cudaDeviceSynchronize());
    std::thread threads[] = {std::thread([&] { write(1); }), std::thread([&] { write(2); }),
                             std::thread([&] { snapshots(); }), std::thread([&] { sets(); }),
                             std::thread([&] { reads(); })};
    for (std::thread& each : threads) each.join();
    NEED(cudaDeviceSynchronize());
    NEED(cudaFree(block_));
  }

 private:
  void write(unsigned value) {
    const std::vector<unsigned> source(kWords, value);
    for (int i = 0; i < kRounds; ++i) {
      if (i % 2)
        NEED(cudaMemcpyAsync(block_, source.data(), kBytes, cudaMemcpyHostToDevice, copies_));
      else if (!copies_)
        NEED(cudaMemcpy(block_, source.data(), kBytes, cudaMemcpyHostToDevice));
    }
  }
  // A kernel reads it whole.
  void snapshots() {
    auto* const own = device_block<unsigned>(kBytes);
    std::vector<unsigned> target(kWords);
    for (int i = 0; i < kRounds; ++i) {
      NEED(launch(launches_, kWords, Copy{block_, own}));
      NEED(cudaMemcpyAsync(target.data(), own, kBytes, cudaMemcpyDeviceToHost, launches_));
      torn += !is_one(target);
    }
    NEED(cudaFree(own));
  }
  void sets() {
    for (int i = 0; i < kRounds; ++i) {
      NEED(cudaMemsetAsync(block_, 0x33, kBytes, launches_));
      std::this_thread::yield();
    }
  }
  void reads() {
    std::vector<unsigned> target(kWords);
    for (int i = 0; i < kRounds; ++i) {
      NEED(cudaMemcpyAsync(target.data(), block_, kBytes, cudaMemcpyDeviceToHost, copies_));
      torn += !is_one(target);
    }
  }

  const cudaStream_t copies_, launches_;
  unsigned* const block_ = device_block<unsigned>(kBytes);
};

int main() {
  const cudaStream_t blocking = new_stream(cudaStreamDefault), own = new_stream(cudaStreamNonBlocking);
  SharedStream(nullptr, nullptr).run();
  say("the default stream: %d torn", torn.exchange(0));
  SharedStream(own, own).run();
  say("a stream of the program's: %d torn", torn.exchange(0));
  // The default stream is ordered with those that block.
  SharedStream(nullptr, blocking).run();
  say("the default stream and one beside it: %d torn", torn.exchange(0));
  NEED(cudaStreamDestroy(blocking));
  NEED(cudaStreamDestroy(own));
  return finish();
}
