// 32 threads allocate, launch, copy and free; half of the blocks are freed by another thread than the one that made
// them. Each block must hold what its owner wrote.
// harness: recycles=device
// harness: per-thread
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "../program.hpp"

struct Parcel {
  unsigned* block;
  size_t bytes;
  unsigned value;
};
static std::mutex lock;
static std::deque<Parcel> parcels;
static std::atomic<int> wrong{0}, checked{0};

static void open_parcel(const Parcel& parcel) {
  std::vector<unsigned> words(parcel.bytes / 4);
  NEED(cudaMemcpy(words.data(), parcel.block, parcel.bytes, cudaMemcpyDeviceToHost));
  for (unsigned word : words) wrong += word != parcel.value;
  ++checked;
  NEED(cudaFree(parcel.block));
}

static void work(unsigned number) {
  std::mt19937 random(number);
  cudaStream_t stream = new_stream();
  const size_t sizes[] = {512, 4096, 4096, 100000, 300000};
  for (int step = 0; step < 40; ++step) {
    Parcel parcel{nullptr, sizes[random() % 5] / 4 * 4, number * 1000 + step};
    parcel.block = device_block(parcel.bytes);
    fill(stream, parcel.block, parcel.bytes, parcel.value);
    NEED(cudaStreamSynchronize(stream));
    if (random() % 2) {
      open_parcel(parcel);
      continue;
    }
    Parcel other{};
    {
      std::lock_guard<std::mutex> guard(lock);
      parcels.push_back(parcel);
      if (parcels.size() > 16) {
        other = parcels.front();
        parcels.pop_front();
      }
    }
    if (other.block) open_parcel(other);
    if (step % 8 == 0) {
      unsigned* pinned = pinned_block(2000);
      pinned[0] = number;
      NEED(cudaFreeHost(pinned));
    }
  }
  NEED(cudaStreamDestroy(stream));
}

int main() {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 32; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  for (const Parcel& parcel : parcels) open_parcel(parcel);
  say("%d blocks checked, %d words wrong", checked.load(), wrong.load());
  return finish();
}
