// Measures pairs of deallocate and allocate that a pool serves from memory it has, over a driver that costs nothing.
// Each pair frees a random live block, and allocates one of another size, between 512 bytes and 32 KiB.
//
//   range_pairs                          the table: threads x live blocks x order of frees x pool
//   range_pairs POOL ORDER LIVE PAIRS    that many pairs of one thread, for a profile or a count of instructions
//
//   ns      time of a pair, over all threads: the least of several rounds
//   p99     the same of single pairs: the least of the rounds; two reads of the clock are in it
//   waits   how often a thread slept for a lock, in 1,000 pairs: the least of the rounds
//   calls   questions for fences and other calls of the driver, in 1,000 pairs
//
// `blocks` recycles whole blocks, with its threads' caches (pool/tiered_pool.hpp). `ranges` is the range pool without
// any (pool/ranges/range_pool.hpp). `set` is a structure like that of PyTorch's pool. It has a std::set of free blocks
// by size and address, a std::unordered_map of live ones, and a mutex.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pool/ranges/range_pool.hpp"
#include "pool/tiered_pool.hpp"

namespace {

using cistern::Acquired;
using cistern::Settled;

// strict: a free has waited. deferred: a block can be had when its fence has settled. stream: work of the stream that
// freed it can have it before; each thread has one.
enum class Order { strict, deferred, stream };
constexpr const char* kOrders[] = {"strict", "deferred", "stream"};

std::atomic<std::uint64_t> driver_calls{0};
Settled ask() {
  driver_calls.fetch_add(1, std::memory_order_relaxed);
  return Settled::yes;
}

constexpr std::uint64_t kFirst = std::uint64_t{1} << 40, kBytes = std::uint64_t{1} << 44;

class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  virtual ~Pool() = default;
  virtual std::uint64_t allocate(std::uint64_t bytes, unsigned stream) = 0;
  virtual void deallocate(std::uint64_t block, unsigned stream) = 0;
};

class NoDriver {
 public:
  using Handle = int;
  using Error = int;
  struct Fence {};
  static std::uint64_t granularity() { return std::uint64_t{2} << 20; }
  static Acquired<Handle, Error> create(std::uint64_t) { return ++driver_calls, Acquired<Handle, Error>{0, 0, true}; }
  static void destroy(Handle) { ++driver_calls; }
  static Error map(std::uint64_t, std::uint64_t, Handle) { return ++driver_calls, 0; }
  static Error allow_access(std::uint64_t, std::uint64_t) { return ++driver_calls, 0; }
  static Error unmap(std::uint64_t, std::uint64_t) { return ++driver_calls, 0; }
  static Settled settled(const Fence&) { return ask(); }
  static bool failed(Error error) { return error != 0; }
  static bool out_of_memory(Error) { return false; }
  static Error no_addresses() { return 1; }
  static bool has_room(std::uint64_t) { return true; }
  static Error no_room() { return 2; }
};

class Ranges final : public Pool {
 public:
  explicit Ranges(Order order) : order_(order), pool_(driver_, settings()) {}
  std::uint64_t allocate(std::uint64_t bytes, unsigned stream) override {
    return pool_.allocate(bytes, order_ == Order::stream ? kStreams + stream : cistern::ranges::kAnyOrder).first;
  }
  void deallocate(std::uint64_t block, unsigned stream) override {
    const cistern::ranges::Order order = order_ == Order::stream ? kStreams + stream : cistern::ranges::kContextOrder;
    pool_.deallocate(block, order, {}, order_ != Order::strict);
  }

 private:
  static constexpr cistern::ranges::Order kStreams = 2;  // behind those that have names
  static cistern::ranges::RangeSettings settings() { return {.first = kFirst, .bytes = kBytes}; }

  const Order order_;
  NoDriver driver_;
  cistern::ranges::RangePool<NoDriver> pool_;
};

struct Block {
  std::uint64_t address, bytes;
};

class BlockSource {
 public:
  using Request = std::uint64_t;
  using Chunk = Block*;
  using Error = int;
  struct Fence {};
  static Acquired<Block*, Error> acquire(std::uint64_t bytes) {
    return ++driver_calls, Acquired<Block*, Error>{new Block{0, bytes}, 0, true};
  }
  static void release(Block* block) { ++driver_calls, delete block; }
  static Settled settled(Block*, const Fence&) { return ask(); }
  static bool out_of_memory(Error) { return false; }
};

constexpr cistern::PoolLimits kNoLimits{.bytes_max = kBytes, .bytes_min = 0, .interval_ns = 0};
cistern::PoolKey key(std::uint64_t bytes, std::uint64_t traits = 0) { return {1, traits, (bytes + 511) / 512 * 512}; }

// Blocks are found by their records here; the preload finds those in a table.
class WholeBlocks final : public Pool {
 public:
  explicit WholeBlocks(Order order) : order_(order), pool_(source_) { pool_.set_limits(kNoLimits); }
  std::uint64_t allocate(std::uint64_t bytes, unsigned stream) override {
    const cistern::PoolKey own = key(bytes, traits(stream));
    std::optional<Block*> block = pool_.take(own, 1);
    if (!block) block = pool_.take_near(own, own.bytes + own.bytes / 4);
    return reinterpret_cast<std::uint64_t>(block ? *block : source_.acquire(own.bytes).chunk);
  }
  void deallocate(std::uint64_t at, unsigned stream) override {
    Block* const block = reinterpret_cast<Block*>(at);
    if (order_ == Order::deferred)
      pool_.give_waiting(key(block->bytes), block, {}, 1);
    else
      pool_.give(key(block->bytes, traits(stream)), block, 1);
  }

 private:
  std::uint64_t traits(unsigned stream) const { return order_ == Order::stream ? 1 + stream : 0; }

  const Order order_;
  BlockSource source_;
  cistern::TieredPool<BlockSource> pool_;
};

// One segment without end. Freed neighbours are joined through a list by address.
class SetOfFree final : public Pool {
 public:
  explicit SetOfFree(Order) { free_.insert({kBytes, kFirst}), blocks_[kFirst] = {kBytes, 0, 0, true}; }
  std::uint64_t allocate(std::uint64_t bytes, unsigned) override {
    std::lock_guard hold(mutex_);
    bytes = (bytes + 511) / 512 * 512;
    const auto best = free_.lower_bound({bytes, 0});
    const std::uint64_t first = best->second, rest = best->first - bytes;
    free_.erase(best);
    Part& part = blocks_[first];
    part.bytes = bytes;
    part.free = false;
    if (rest) {
      const std::uint64_t after = part.after;
      part.after = first + bytes;
      blocks_[first + bytes] = {rest, first, after, true};
      if (after) blocks_[after].before = first + bytes;
      free_.insert({rest, first + bytes});
    }
    return first;
  }
  void deallocate(std::uint64_t first, unsigned) override {
    std::lock_guard hold(mutex_);
    Part& part = blocks_[first];
    part.free = true;
    if (part.after && blocks_[part.after].free) take_in(first, part.after);
    const std::uint64_t before = part.before;
    if (before && blocks_[before].free) {
      free_.erase({blocks_[before].bytes, before});
      join(before, first);
      first = before;
    }
    free_.insert({blocks_[first].bytes, first});
  }

 private:
  struct Part {
    std::uint64_t bytes = 0, before = 0, after = 0;
    bool free = false;
  };
  void take_in(std::uint64_t first, std::uint64_t after) {
    free_.erase({blocks_[after].bytes, after});
    join(first, after);
  }
  void join(std::uint64_t first, std::uint64_t second) {
    const Part gone = blocks_[second];
    blocks_.erase(second);
    blocks_[first].bytes += gone.bytes;
    blocks_[first].after = gone.after;
    if (gone.after) blocks_[gone.after].before = first;
  }

  std::mutex mutex_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> free_;
  std::unordered_map<std::uint64_t, Part> blocks_;
};

struct PoolKind {
  const char* name;
  std::unique_ptr<Pool> (*make)(Order);
  bool (*has)(Order);
};
template <class P>
std::unique_ptr<Pool> make(Order order) {
  return std::make_unique<P>(order);
}
constexpr auto kInAll = [](Order) { return true; };
constexpr auto kInStrict = [](Order order) { return order == Order::strict; };
constexpr PoolKind kPools[] = {
    {"blocks", make<WholeBlocks>, kInAll}, {"ranges", make<Ranges>, kInAll}, {"set", make<SetOfFree>, kInStrict}};

// One thread's blocks, and the pairs that it makes.
class Worker {
 public:
  Worker(Pool& pool, unsigned number) : pool_(pool), number_(number), random_(number + 1) {}
  void fill(std::size_t blocks) {
    for (std::size_t i = 0; i < blocks; ++i) live_.push_back(pool_.allocate(any_bytes(), number_));
  }
  void pair() {
    std::uint64_t& one = live_[random_() % live_.size()];
    pool_.deallocate(one, number_);
    one = pool_.allocate(any_bytes(), number_);
  }
  [[gnu::noinline]] void pairs(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) pair();
  }
  std::size_t count() const { return live_.size(); }

 private:
  std::uint64_t any_bytes() { return 512 * (1 + random_() % 64); }

  Pool& pool_;
  const unsigned number_;
  std::mt19937_64 random_;
  std::vector<std::uint64_t> live_;
};

struct Figures {
  double ns = 1e18, p99 = 1e18, waits = 1e18, calls = 1e18;
  void operator|=(const Figures& other) {
    ns = std::min(ns, other.ns);
    p99 = std::min(p99, other.p99);
    waits = std::min(waits, other.waits);
    calls = std::min(calls, other.calls);
  }
};

double now_ns() {
  return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}
double sleeps() {
  rusage now{};
  getrusage(RUSAGE_THREAD, &now);
  return static_cast<double>(now.ru_nvcsw);
}
double p99_of_single_pairs(Worker& worker, std::size_t pairs) {
  std::vector<double> taken(pairs);
  for (double& one : taken) {
    const double from = now_ns();
    worker.pair();
    one = now_ns() - from;
  }
  const auto at = taken.begin() + static_cast<std::ptrdiff_t>(pairs / 100 * 99);
  std::nth_element(taken.begin(), at, taken.end());
  return *at;
}

constexpr std::size_t kPairs = 200'000;  // all threads' in a round
constexpr int kRounds = 5;

// Blocks were allocated and freed at random before, so that free memory lies between live blocks.
Figures measure(const PoolKind& kind, Order order, std::size_t live, unsigned threads) {
  const std::unique_ptr<Pool> pool = kind.make(order);
  const std::size_t each = kPairs / threads;
  std::vector<Figures> rounds(kRounds);
  std::vector<double> slept(threads), p99(threads);
  double from = 0;
  std::uint64_t calls_from = 0;
  int round = 0;
  bool is_timed = false;
  std::barrier together(threads, [&]() noexcept {
    if (!std::exchange(is_timed, !is_timed)) return void((from = now_ns(), calls_from = driver_calls));
    Figures& now = rounds[static_cast<std::size_t>(round++)];
    now.ns = (now_ns() - from) / static_cast<double>(each * threads);
    now.calls = static_cast<double>(driver_calls - calls_from) / static_cast<double>(each * threads) * 1000;
    now.waits = 0;
    for (const double one : slept) now.waits += one / static_cast<double>(each * threads) * 1000;
  });
  const auto run = [&](unsigned number) {
    Worker worker(*pool, number);
    worker.fill(std::max<std::size_t>(1, live / threads));
    worker.pairs(2 * worker.count());
    for (int i = 0; i < kRounds; ++i) {
      together.arrive_and_wait();
      const double before = sleeps();
      worker.pairs(each);
      slept[number] = sleeps() - before;
      together.arrive_and_wait();
    }
    p99[number] = 1e18;
    for (int i = 0; i < kRounds; ++i) p99[number] = std::min(p99[number], p99_of_single_pairs(worker, each));
  };
  std::vector<std::thread> all;
  for (unsigned number = 0; number < threads; ++number) all.emplace_back(run, number);
  for (std::thread& thread : all) thread.join();
  Figures best;
  for (const Figures& one : rounds) best |= one;
  best.p99 = *std::max_element(p99.begin(), p99.end());
  return best;
}

void print_table() {
  std::printf("threads    live  order     pool         ns     p99   waits   calls\n");
  for (const unsigned threads : {1u, 2u, 4u, 8u, 16u, 32u})
    for (const std::size_t live : {100u, 10'000u, 100'000u})
      for (const Order order : {Order::strict, Order::deferred, Order::stream})
        for (const PoolKind& kind : kPools) {
          if (!kind.has(order)) continue;
          const Figures best = measure(kind, order, live, threads);
          std::printf("%7u %7zu  %-8s  %-6s %8.0f %7.0f %7.2f %7.1f\n", threads, live, kOrders[static_cast<int>(order)],
                      kind.name, best.ns, best.p99, best.waits, best.calls);
          std::fflush(stdout);
        }
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 1) return print_table(), 0;
  for (const PoolKind& kind : kPools)
    for (const Order order : {Order::strict, Order::deferred, Order::stream}) {
      if (count != 5 || arguments[1] != std::string_view(kind.name)) continue;
      if (arguments[2] != std::string_view(kOrders[static_cast<int>(order)])) continue;
      const std::unique_ptr<Pool> pool = kind.make(order);
      Worker worker(*pool, 0);
      worker.fill(std::strtoull(arguments[3], nullptr, 10));
      for (std::size_t i = 0; i < 2 * worker.count(); ++i) worker.pair();  // not in pairs(), which profiles look at
      worker.pairs(std::strtoull(arguments[4], nullptr, 10));
      return 0;
    }
  std::fprintf(stderr, "usage: range_pairs [POOL ORDER LIVE PAIRS]\n");
  return 2;
}
