// Threads copy to and from blocks of their own on streams that all share, parts and rectangles of them and kernels that
// change them in between; every byte is compared with what the program knows it must be.
// Arguments: steps of all threads (600), the seed (1).
// harness: stages=both
#include <barrier>
#include <chrono>
#include <random>
#include <thread>

#include "../program.hpp"
#include "../staging.hpp"

constexpr int kThreads = 4, kStreams = 4;
constexpr size_t kWordsMax = size_t{3} << 18;  // 3 MiB

static std::atomic<int> wrong{0};

class Worker {
 public:
  Worker(const std::vector<cudaStream_t>& streams, unsigned long seed) : random_(seed), streams_(streams) {
    for (Block& block : blocks_) {
      block.words = kWordsMax / 4 + pick(kWordsMax * 3 / 4);
      block.device = device_block(block.words * 4);
      block.model.assign(block.words, 0);
      block.stream = pick(kStreams);
      fill(streams_[block.stream], block.device, block.words * 4, 0);
    }
    NEED(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }

  void run(int steps, int number, std::barrier<>& all) {
    for (int i = 0; i < steps; ++i) step(blocks_[pick(2)]);
    // Then one after another, on streams that the others leave alone: these copies are staged for certain.
    for (int whose = 0; whose < kThreads; ++whose) {
      all.arrive_and_wait();
      if (whose == number) copy_undisturbed(blocks_[0]);
    }
    for (Block& block : blocks_) copy_out(block, {0, block.words});
    for (Block& block : blocks_) NEED(cudaFree(block.device));
    NEED(cudaEventDestroy(event_));
  }

 private:
  struct Block {
    unsigned* device = nullptr;
    size_t words = 0;
    std::vector<unsigned> model;  // what it holds
    size_t stream = 0;
  };
  struct Part {
    size_t first, words;
  };
  size_t pick(size_t n) { return random_() % n; }

  // Mostly of a size that is staged.
  Part any_part(const Block& block) {
    const size_t words = pick(4) == 0 ? 1 + pick(30000) : 1 + pick(block.words);
    return {pick(block.words - std::min(words, block.words) + 1), std::min(words, block.words)};
  }
  // A synchronous copy is on the legacy stream, which is ordered with those that are not non-blocking.
  bool may_be_synchronous(const Block& block) { return block.stream % 2 == 0 && pick(2) == 0; }

  void step(Block& block) {
    switch (pick(8)) {
      case 0:
      case 1:
        return copy_in(block, any_part(block));
      case 2:
      case 3:
        return copy_out(block, any_part(block));
      case 4:
        return rows_in(block);
      case 5:
        return rows_out(block);
      case 6: {
        const unsigned amount = static_cast<unsigned>(random_());
        NEED(launch(streams_[block.stream], block.words, Add{block.device, amount}));
        for (unsigned& word : block.model) word += amount;
        return;
      }
      default:
        return move_on(block);
    }
  }

  void copy_in(Block& block, const Part& part) {
    std::vector<unsigned> source(part.words);
    const unsigned start = static_cast<unsigned>(random_());
    for (size_t i = 0; i < part.words; ++i) source[i] = block.model[part.first + i] = start + static_cast<unsigned>(i);
    unsigned* const to = block.device + part.first;
    if (may_be_synchronous(block))
      NEED(cudaMemcpy(to, source.data(), part.words * 4, cudaMemcpyHostToDevice));
    else
      NEED(cudaMemcpyAsync(to, source.data(), part.words * 4, cudaMemcpyHostToDevice, streams_[block.stream]));
    std::fill(source.begin(), source.end(), 0x55555555u);
  }

  void copy_out(Block& block, const Part& part) {
    std::vector<unsigned> target(part.words, 0x55555555u);
    const unsigned* const from = block.device + part.first;
    if (may_be_synchronous(block))
      NEED(cudaMemcpy(target.data(), from, part.words * 4, cudaMemcpyDeviceToHost));
    else
      NEED(cudaMemcpyAsync(target.data(), from, part.words * 4, cudaMemcpyDeviceToHost, streams_[block.stream]));
    wrong += memcmp(target.data(), block.model.data() + part.first, part.words * 4) != 0;
  }

  void copy_undisturbed(Block& block) {
    NEED(cudaDeviceSynchronize());
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    copy_in(block, {0, block.words});
    NEED(cudaDeviceSynchronize());
    copy_out(block, {0, block.words});
  }

  struct Rows {
    size_t first, pitch, width, height;
  };
  Rows any_rows(const Block& block) {
    const size_t pitch = 100 + pick(4000), width = 1 + pick(pitch), rows = block.words / pitch - 1;
    return {pick(pitch - width + 1), pitch, width, 1 + pick(rows)};
  }

  void rows_in(Block& block) {
    const Rows rows = any_rows(block);
    const size_t host_pitch = rows.width + pick(50);
    std::vector<unsigned> source(host_pitch * rows.height);
    for (unsigned& word : source) word = static_cast<unsigned>(random_());
    for (size_t y = 0; y < rows.height; ++y)
      memcpy(&block.model[rows.first + y * rows.pitch], &source[y * host_pitch], rows.width * 4);
    NEED(cudaMemcpy2DAsync(block.device + rows.first, rows.pitch * 4, source.data(), host_pitch * 4, rows.width * 4,
                           rows.height, cudaMemcpyHostToDevice, streams_[block.stream]));
    std::fill(source.begin(), source.end(), 0x55555555u);
  }

  void rows_out(Block& block) {
    const Rows rows = any_rows(block);
    const size_t host_pitch = rows.width + pick(50);
    std::vector<unsigned> target(host_pitch * rows.height, 0x55555555u);
    NEED(cudaMemcpy2DAsync(target.data(), host_pitch * 4, block.device + rows.first, rows.pitch * 4, rows.width * 4,
                           rows.height, cudaMemcpyDeviceToHost, streams_[block.stream]));
    bool same = true;
    for (size_t y = 0; y < rows.height; ++y) {
      same &= memcmp(&block.model[rows.first + y * rows.pitch], &target[y * host_pitch], rows.width * 4) == 0;
      for (size_t x = rows.width; x < host_pitch; ++x) same &= target[y * host_pitch + x] == 0x55555555u;
    }
    wrong += !same;
  }

  void move_on(Block& block) {
    const size_t next = pick(kStreams);
    NEED(cudaEventRecord(event_, streams_[block.stream]));
    NEED(cudaStreamWaitEvent(streams_[next], event_, 0));
    block.stream = next;
  }

  std::mt19937_64 random_;
  const std::vector<cudaStream_t>& streams_;
  cudaEvent_t event_ = nullptr;
  Block blocks_[2];
};

int main(int argc, char** argv) {
  const int steps = argc > 1 ? static_cast<int>(strtod(argv[1], nullptr)) : 600;  // 1e6 is a number too
  const unsigned long seed = argc > 2 ? strtoul(argv[2], nullptr, 0) : 1;
  std::vector<cudaStream_t> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(new_stream(i % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
  std::barrier<> all(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&streams, &all, seed, steps, i] {
      Worker(streams, seed + 1000003 * static_cast<unsigned long>(i)).run(steps / kThreads, i, all);
    });
  for (std::thread& thread : threads) thread.join();
  say("seed %lu, %d steps: %d wrong", seed, steps, wrong.load());
  for (cudaStream_t stream : streams) NEED(cudaStreamDestroy(stream));
  return finish();
}
