// Actor: CUDA device and pinned memory, kernels, copies and streams, blocks handed between threads, and allocations
// that must fail. Never more than half of the device is in use, so no other allocation may. At the end Cistern must
// have counted what was counted here.
#include <vector>

#include "tests/cuda/kernel.hpp"
#include "tests/storm/cistern_calls.hpp"
#include "tests/storm/storm.hpp"

namespace storm {
namespace {

constexpr unsigned kPlaces = 24;

struct Block {
  unsigned* data;
  size_t words;
  unsigned value;  // of each word
};

struct Counts {
  std::atomic<uint64_t> device{0}, pinned{0}, refused{0};
} made;
std::atomic<Block*> places[kPlaces];
std::atomic<int64_t> words_live{0};
int64_t words_most;

void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess)
    fail("%s: %s, %lld words live", what, cudaGetErrorName(code), static_cast<long long>(words_live));
}
#define CHECK(call) check(call, #call)

bool set_up() {
  size_t free_bytes = 0, total_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) return false;
  words_most = static_cast<int64_t>(total_bytes / 2 / sizeof(unsigned));
  define_kernel<Fill>();
  return true;
}

void fill(cudaStream_t stream, Block& block, Random& random) {
  block.value = static_cast<unsigned>(random.next());
  CHECK(launch(stream, block.words, Fill{block.data, block.value}));
}

Block* make(cudaStream_t stream, Random& random) {
  const size_t words = 1 + random.below(random.below(4) ? 5000 : 1000000);
  if (words_live.fetch_add(static_cast<int64_t>(words)) + static_cast<int64_t>(words) > words_most) {
    words_live -= static_cast<int64_t>(words);
    return nullptr;
  }
  Block* const block = new Block{nullptr, words, 0};
  CHECK(cudaMalloc(reinterpret_cast<void**>(&block->data), words * sizeof(unsigned)));
  ++made.device;
  fill(stream, *block, random);
  return block;
}

void require_words(const unsigned* words, const Block& block, const char* way) {
  for (size_t i = 0; i < block.words; ++i)
    if (words[i] != block.value)
      fail("CUDA, %s: word %zu of %zu is %x, not %x", way, i, block.words, words[i], block.value);
}

void require_value(cudaStream_t stream, const Block& block, Random& random) {
  const size_t bytes = block.words * sizeof(unsigned);
  if (random.below(2)) {
    std::vector<unsigned> words(block.words);
    CHECK(cudaMemcpyAsync(words.data(), block.data, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return require_words(words.data(), block, "pageable");
  }
  void* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, bytes));
  ++made.pinned;
  CHECK(cudaMemcpyAsync(pinned, block.data, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  require_words(static_cast<unsigned*>(pinned), block, "pinned");
  CHECK(cudaFreeHost(pinned));
}

void end(cudaStream_t stream, Block* block, Random& random) {
  if (!block) return;
  require_value(stream, *block, random);
  CHECK(cudaFree(block->data));
  words_live -= static_cast<int64_t>(block->words);
  delete block;
}

void ask_too_much() {
  void* block = nullptr;
  const cudaError_t code = cudaMalloc(&block, size_t{1} << 45);
  if (code != cudaErrorMemoryAllocation) fail("cudaMalloc of 2^45 bytes: %s", cudaGetErrorName(code));
  cudaGetLastError();
  ++made.refused;
}

// A block changes hands when every command on it has ended.
void turn(Random& random) {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < 5; ++i) {
    std::atomic<Block*>& place = places[random.below(kPlaces)];
    Block* block = place.exchange(nullptr);
    if (block && random.below(2)) {
      require_value(stream, *block, random);
      fill(stream, *block, random);
    } else {
      end(stream, block, random);
      block = make(stream, random);
    }
    CHECK(cudaStreamSynchronize(stream));
    end(stream, place.exchange(block), random);
  }
  if (random.below(10) == 0) ask_too_much();
  CHECK(cudaStreamDestroy(stream));
}

void require_counted(cistern_kind kind, const char* name, uint64_t wanted, uint64_t wanted_failed) {
  const cistern_statistics figures = statistics_of(kind);
  if (figures.allocations != wanted || figures.frees != wanted || figures.live_blocks || figures.live_bytes ||
      figures.failed != wanted_failed)
    fail("%s: %llu made and %llu refused, and Cistern says %llu and %llu, %llu freed, %llu live", name,
         static_cast<unsigned long long>(wanted), static_cast<unsigned long long>(wanted_failed),
         static_cast<unsigned long long>(figures.allocations), static_cast<unsigned long long>(figures.failed),
         static_cast<unsigned long long>(figures.frees), static_cast<unsigned long long>(figures.live_blocks));
}

void end_all() {
  Random random(1);
  for (std::atomic<Block*>& place : places) end(nullptr, place.exchange(nullptr), random);
  if (!cistern.get_statistics) return;
  require_counted(CISTERN_DEVICE, "device memory", made.device, made.refused);
  require_counted(CISTERN_PINNED, "pinned memory", made.pinned, 0);
}

const Registered cuda({"cuda", 2, turn, set_up, end_all});

}  // namespace
}  // namespace storm
