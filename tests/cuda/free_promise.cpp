// What cudaMemGetInfo calls free can be had by the next allocation, whatever happened before and what happens in
// between that frees and takes nothing: random allocations, frees, work on streams, waits and captures, and now and
// then the question, after which a capture may begin or end. After a wait for the device all is free that the program
// does not hold, but for what the pool's blocks waste.
// Options: --steps N (3000), --seed N (random; CISTERN_TEST_SEED), --captures 0 (none), --beside BYTES (0: that may lie
// unused beside live blocks).
#include <cstring>

#include "random_program.hpp"

namespace {

constexpr size_t kUnit = 512;

size_t beside_blocks = 0;
bool captures = true;

struct Block {
  char* data;
  size_t bytes;
};

class Run {
 public:
  Run() {
    CHECK(cudaMemGetInfo(&all_, &total_));
    CHECK(cudaStreamCreateWithFlags(&streams_[0], cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&streams_[1], cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&captured_, cudaStreamNonBlocking));
  }

  void one_step() {
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        return allocate();
      case 3:
      case 4:
        return free_one();
      case 5:
      case 6:
      case 7:
        return work();
      case 8:
        return toggle_capture();
      case 9:
        return wait();
      default:
        return ask();
    }
  }
  void end() {
    if (capturing_) toggle_capture();
    while (!blocks_.empty()) free_one();
    if (!promises_ || (captures && !in_captures_)) fail("nothing was asked");
    printf("%lu promises kept, %lu of them in captures\n", promises_, in_captures_);
  }

 private:
  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }

  void allocate() {
    if (blocks_.size() > 40) return;
    const size_t most = below(8) ? all_ / 64 : all_ / 3, bytes = 1 + below(most);
    if (held_ + 2 * bytes > all_) return;
    char* data = nullptr;
    CHECK(cudaMalloc(reinterpret_cast<void**>(&data), bytes));
    blocks_.push_back({data, bytes});
    held_ += rounded(bytes);
  }
  void free_one() {
    if (blocks_.empty()) return;
    std::swap(blocks_[below(blocks_.size())], blocks_.back());
    CHECK(cudaFree(blocks_.back().data));
    held_ -= rounded(blocks_.back().bytes);
    blocks_.pop_back();
  }
  void work() {
    if (blocks_.empty()) return;
    const Block& block = blocks_[below(blocks_.size())];
    CHECK(cudaMemsetAsync(block.data, 1, std::min<size_t>(block.bytes, 4096), streams_[below(2)]));
  }
  void toggle_capture() {
    if (!captures) return;
    if (!capturing_) {
      CHECK(cudaStreamBeginCapture(captured_, cudaStreamCaptureModeRelaxed));
    } else {
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(captured_, &graph));
      CHECK(cudaGraphDestroy(graph));
    }
    capturing_ = !capturing_;
  }
  void wait() {
    if (capturing_) return;
    CHECK(cudaDeviceSynchronize());
    const size_t free_bytes = free_now(), wasted = all_ / 64 + (size_t{2} << 20) + beside_blocks;
    if (free_bytes + held_ + wasted < all_)
      fail("%zu free, %zu held of %zu: less than there is", free_bytes, held_, all_);
  }
  void ask() {
    const size_t free_bytes = free_now();
    if (free_bytes > all_) fail("%zu free of %zu", free_bytes, all_);
    if (!below(3)) toggle_capture();
    if (!below(3)) work();
    const size_t bytes = below(4) ? free_bytes / kUnit * kUnit : below(free_bytes + 1);
    if (!bytes) return;
    void* all = nullptr;
    const cudaError_t code = cudaMalloc(&all, bytes);
    if (code != cudaSuccess)
      fail("%zu bytes of %zu free%s: %s", bytes, free_bytes, capturing_ ? ", in a capture" : "",
           cudaGetErrorName(code));
    ++promises_;
    in_captures_ += capturing_;
    CHECK(cudaFree(all));
  }
  size_t free_now() {
    size_t free_bytes = 0, total = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
  }
  static size_t rounded(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

  std::mt19937_64 random_{run_seed};
  size_t all_ = 0, total_ = 0, held_ = 0;
  cudaStream_t streams_[2]{}, captured_ = nullptr;
  std::vector<Block> blocks_;
  bool capturing_ = false;
  unsigned long promises_ = 0, in_captures_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  unsigned long steps = 3000;
  for (int i = 1; i + 1 < count; i += 2) {
    const unsigned long value = strtoul(arguments[i + 1], nullptr, 10);
    if (!strcmp(arguments[i], "--beside"))
      beside_blocks = value;
    else if (!strcmp(arguments[i], "--captures"))
      captures = value;
    else
      (strcmp(arguments[i], "--seed") ? steps : run_seed) = value;
  }
  say("seed %lu", run_seed);
  Run run;
  for (; steps_done < steps; ++steps_done) run.one_step();
  run.end();
  return 0;
}
