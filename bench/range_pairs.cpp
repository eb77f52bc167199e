// The cost of a pair of allocate and deallocate that the range pool serves from memory it has: over a driver that costs
// nothing, with so many blocks live. Beside it a structure like that of PyTorch's pool: a std::set of free blocks by
// size and address, a std::unordered_map of live ones, and a mutex.
//
//   same       the block that was freed last is taken again
//   any        a block that lives at random goes, and one of another size comes
//
//   p99_ns           the 99th percentile of single pairs, with the two reads of the clock around each
//   waits_per_1000   how often a thread slept in 1,000 of those pairs
//   cpu_ns           the processor's time of one, which counts where there are more threads than cores
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "pool/ranges/range_pool.hpp"

namespace {

using cistern::Acquired;
using cistern::Settled;

class NoDriver {
 public:
  using Handle = int;
  using Error = int;
  struct Fence {};
  static std::uint64_t granularity() { return std::uint64_t{2} << 20; }
  static Acquired<Handle, Error> create(std::uint64_t) { return {0, 0, true}; }
  static void destroy(Handle) {}
  static Error map(std::uint64_t, std::uint64_t, Handle) { return 0; }
  static Error allow_access(std::uint64_t, std::uint64_t) { return 0; }
  static Error unmap(std::uint64_t, std::uint64_t) { return 0; }
  static Settled settled(const Fence&) { return Settled::yes; }
  static bool failed(Error error) { return error != 0; }
  static bool out_of_memory(Error) { return false; }
  static Error no_addresses() { return 1; }
  static bool has_room(std::uint64_t) { return true; }
  static Error no_room() { return 2; }
};

constexpr std::uint64_t kFirst = std::uint64_t{1} << 40, kBytes = std::uint64_t{1} << 44;

class Ranges {
 public:
  std::uint64_t allocate(std::uint64_t bytes) { return pool_.allocate(bytes, cistern::ranges::kAnyOrder).first; }
  void deallocate(std::uint64_t first) { pool_.deallocate(first, cistern::ranges::kAnyOrder, {}, false); }

 private:
  NoDriver driver_;
  cistern::ranges::RangePool<NoDriver> pool_{driver_, {kFirst, kBytes}};
};

// One segment without end. Freed neighbours are joined through a list by address.
class SetOfFree {
 public:
  SetOfFree() { free_.insert({kBytes, kFirst}), blocks_[kFirst] = {kBytes, 0, 0, true}; }
  std::uint64_t allocate(std::uint64_t bytes) {
    std::lock_guard hold(mutex_);
    bytes = (bytes + 511) / 512 * 512;
    const auto best = free_.lower_bound({bytes, 0});
    const std::uint64_t first = best->second, rest = best->first - bytes;
    free_.erase(best);
    Block& block = blocks_[first];
    block.bytes = bytes;
    block.free = false;
    if (rest) {
      const std::uint64_t after = block.after;
      block.after = first + bytes;
      blocks_[first + bytes] = {rest, first, after, true};
      if (after) blocks_[after].before = first + bytes;
      free_.insert({rest, first + bytes});
    }
    return first;
  }
  void deallocate(std::uint64_t first) {
    std::lock_guard hold(mutex_);
    Block& block = blocks_[first];
    block.free = true;
    if (block.after && blocks_[block.after].free) take_in(first, block.after);
    const std::uint64_t before = block.before;
    if (before && blocks_[before].free) {
      free_.erase({blocks_[before].bytes, before});
      join(before, first);
      first = before;
    }
    free_.insert({blocks_[first].bytes, first});
  }

 private:
  struct Block {
    std::uint64_t bytes = 0, before = 0, after = 0;
    bool free = false;
  };
  void take_in(std::uint64_t first, std::uint64_t after) {
    free_.erase({blocks_[after].bytes, after});
    join(first, after);
  }
  void join(std::uint64_t first, std::uint64_t second) {
    const Block gone = blocks_[second];
    blocks_.erase(second);
    blocks_[first].bytes += gone.bytes;
    blocks_[first].after = gone.after;
    if (gone.after) blocks_[gone.after].before = first;
  }

  std::mutex mutex_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> free_;
  std::unordered_map<std::uint64_t, Block> blocks_;
};

std::uint64_t any_bytes(std::mt19937_64& random) { return 512 * (1 + random() % 64); }

template <class Pool>
struct Shared {
  std::unique_ptr<Pool> pool;
  std::vector<std::vector<std::uint64_t>> live;
};

// Blocks were allocated and freed at random before, so that free memory lies between live blocks.
template <class Pool>
void fill(Shared<Pool>& shared, const benchmark::State& state) {
  std::mt19937_64 random(1);
  shared.pool = std::make_unique<Pool>();
  shared.live.assign(static_cast<std::size_t>(state.threads()), {});
  const std::size_t each = std::max<std::size_t>(1, static_cast<std::size_t>(state.range(0) / state.threads()));
  for (auto& live : shared.live)
    for (std::size_t i = 0; i < each; ++i) live.push_back(shared.pool->allocate(any_bytes(random)));
  for (auto& live : shared.live)
    for (std::size_t i = 0; i < 2 * each; ++i) {
      std::uint64_t& one = live[random() % each];
      shared.pool->deallocate(one);
      one = shared.pool->allocate(any_bytes(random));
    }
}

struct Usage {
  explicit Usage() { getrusage(RUSAGE_THREAD, &now); }
  double sleeps() const { return static_cast<double>(now.ru_nvcsw); }
  double nanoseconds() const { return in_nanoseconds(now.ru_utime) + in_nanoseconds(now.ru_stime); }
  static double in_nanoseconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_usec) * 1e3;
  }
  rusage now{};
};

template <class Pool, bool kSame>
void pairs(benchmark::State& state) {
  static Shared<Pool> shared;
  if (state.thread_index() == 0) fill(shared, state);
  std::vector<std::uint32_t> taken_ns;
  taken_ns.reserve(1 << 20);
  std::mt19937_64 random(static_cast<unsigned>(state.thread_index()) + 2);
  std::vector<std::uint64_t>* live = nullptr;
  const auto pair = [&] {
    if (kSame) {
      shared.pool->deallocate(shared.pool->allocate(4096));
    } else {
      std::uint64_t& one = (*live)[random() % live->size()];
      shared.pool->deallocate(one);
      one = shared.pool->allocate(any_bytes(random));
    }
  };
  for (auto _ : state) {
    live = &shared.live[static_cast<std::size_t>(state.thread_index())];
    pair();
  }
  constexpr int kTimed = 200'000;
  const Usage before;
  for (int i = 0; i < kTimed; ++i) {
    const auto began = std::chrono::steady_clock::now();
    pair();
    taken_ns.push_back(static_cast<std::uint32_t>((std::chrono::steady_clock::now() - began).count()));
  }
  const Usage after;
  state.counters["waits_per_1000"] =
      benchmark::Counter((after.sleeps() - before.sleeps()) / kTimed * 1000, benchmark::Counter::kAvgThreads);
  state.counters["cpu_ns"] =
      benchmark::Counter((after.nanoseconds() - before.nanoseconds()) / kTimed, benchmark::Counter::kAvgThreads);
  std::nth_element(taken_ns.begin(), taken_ns.begin() + 198'000, taken_ns.end());
  state.counters["p99_ns"] = benchmark::Counter(taken_ns[198'000], benchmark::Counter::kAvgThreads);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(1)->Arg(1'000)->Arg(100'000)->ThreadRange(1, 2)->Threads(32)->UseRealTime();
}
BENCHMARK(pairs<Ranges, true>)->Name("ranges/same")->Apply(sizes);
BENCHMARK(pairs<SetOfFree, true>)->Name("set/same")->Apply(sizes);
BENCHMARK(pairs<Ranges, false>)->Name("ranges/any")->Apply(sizes);
BENCHMARK(pairs<SetOfFree, false>)->Name("set/any")->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
