// A program with mixed sizes: lognormal between 1 KiB and 256 MiB, several threads, blocks of random age freed, a
// quarter of them by another thread. Says, as one JSON object, what it called, how long that took, the hits after a
// warm-up, and the most that the pool ever kept.
//
// Memory in the hands of a call is neither live nor kept: a block that is being freed still waits for the device, or
// has pushed out others whose real free is under way. So a sample subtracts what calls of that moment may hold, rounded
// as the pool rounds; `most_held_bytes` is what was seen without that.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "bench/cuda_bench.hpp"

namespace bench {
namespace {

constexpr std::size_t kLivePerThread = 48;
constexpr std::size_t kInboxMax = 16;
constexpr int kWarmUpPart = 5;  // the first fifth of the steps

std::uint64_t draw_bytes(std::mt19937_64& random) {
  constexpr double kSmallest = 1024, kLargest = 256.0 * 1024 * 1024;
  std::lognormal_distribution<double> distribution(13.2, 1.9);  // median 530 KiB
  for (;;) {
    const double bytes = distribution(random);
    if (bytes >= kSmallest && bytes <= kLargest) return static_cast<std::uint64_t>(bytes);
  }
}

struct Block {
  CUdeviceptr address;
  std::uint64_t bytes;
};

// Blocks that other threads hand to one thread, to be freed by it.
class Inbox {
 public:
  // False: its thread does not keep up, and the block stays with the caller.
  bool put(Block block) {
    const std::lock_guard<std::mutex> hold(lock_);
    if (blocks_.size() >= kInboxMax) return false;
    blocks_.push_back(block);
    return true;
  }
  std::vector<Block> take_all() {
    const std::lock_guard<std::mutex> hold(lock_);
    return std::exchange(blocks_, {});
  }

 private:
  std::mutex lock_;
  std::vector<Block> blocks_;
};

// Bytes of calls that began and that ended, so far.
struct Traffic {
  std::atomic<std::uint64_t> began{0}, ended{0};
};
Traffic traffic;

// One allocation or free under way.
class Passing {
 public:
  explicit Passing(std::uint64_t bytes) : bytes_(bytes + bytes / 8 + 512) { traffic.began += bytes_; }
  ~Passing() { traffic.ended += bytes_; }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

 private:
  std::uint64_t bytes_;
};

struct Worker {
  std::mt19937_64 random;
  std::vector<Block> live;
  Inbox inbox;
  std::uint64_t allocations = 0, frees = 0;

  void free_all(const std::vector<Block>& blocks) {
    for (const Block& block : blocks) {
      Passing passing(block.bytes);
      MUST(cuMemFree(block.address));
    }
    frees += blocks.size();
  }
  void step(Worker& neighbour) {
    Block block{0, draw_bytes(random)};
    {
      Passing passing(block.bytes);
      MUST(cuMemAlloc(&block.address, block.bytes));
    }
    ++allocations;
    live.push_back(block);
    if (live.size() > kLivePerThread) {
      std::swap(live[random() % live.size()], live.back());
      const Block old = live.back();
      live.pop_back();
      if (random() % 4 || !neighbour.inbox.put(old)) free_all({old});
    }
    free_all(inbox.take_all());
  }
};

// Looks at what the pool keeps as often as it can without being the load itself.
class Sampler {
 public:
  Sampler() : thread_([this] { run(); }) {}
  void stop() {
    stop_.store(true);
    thread_.join();
  }
  std::uint64_t samples = 0, most_held_bytes = 0, most_kept_bytes = 0, most_live_bytes = 0;

 private:
  void run() {
    while (!stop_.load()) {
      const std::uint64_t ended = traffic.ended;
      const cistern_statistics now = statistics(CISTERN_DEVICE);
      const std::uint64_t passing = traffic.began - ended;
      ++samples;
      most_held_bytes = std::max(most_held_bytes, now.pooled_bytes);
      most_kept_bytes = std::max(most_kept_bytes, now.pooled_bytes - std::min(now.pooled_bytes, passing));
      most_live_bytes = std::max(most_live_bytes, now.live_bytes);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace

int mixed(std::uint64_t seed, int threads, int steps) {
  std::vector<Worker> workers(static_cast<std::size_t>(threads));
  auto warm = cistern::sized<cistern_statistics>();
  Clock::time_point begin{};
  std::barrier warmed_up(threads, [&]() noexcept {
    warm = statistics(CISTERN_DEVICE);
    begin = Clock::now();
  });
  Sampler sampler;
  std::vector<std::thread> running;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    workers[i].random.seed(seed + i);
    running.emplace_back([&, i] {
      MUST(cuCtxSetCurrent(primary_context()));
      for (int step = 0; step < steps; ++step) {
        if (step == steps / kWarmUpPart) warmed_up.arrive_and_wait();
        workers[i].step(workers[(i + 1) % workers.size()]);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  const double elapsed = nanoseconds(Clock::now() - begin);
  const cistern_statistics end = statistics(CISTERN_DEVICE);
  std::uint64_t allocations = 0, frees = 0;
  for (Worker& worker : workers) {
    worker.free_all(worker.live);
    worker.free_all(worker.inbox.take_all());
    allocations += worker.allocations;
    frees += worker.frees;
  }
  sampler.stop();
  const std::uint64_t warm_allocations = end.allocations - warm.allocations;
  std::printf(
      "{\"allocations\": %llu, \"frees\": %llu, \"ns\": %.1f, \"warm_allocations\": %llu, \"warm_hits\": %llu, "
      "\"samples\": %llu, \"most_held_bytes\": %llu, \"most_kept_bytes\": %llu, \"most_live_bytes\": %llu, "
      "\"simulated_calls\": %lld}\n",
      1ull * allocations, 1ull * frees,
      elapsed / (static_cast<double>(steps) * threads * (kWarmUpPart - 1) / kWarmUpPart), 1ull * warm_allocations,
      1ull * (end.pool_hits - warm.pool_hits), 1ull * sampler.samples, 1ull * sampler.most_held_bytes,
      1ull * sampler.most_kept_bytes, 1ull * sampler.most_live_bytes,
      simcuda_value("allocs") < 0 ? -1 : simcuda_value("allocs") + simcuda_value("frees"));
  return 0;
}

}  // namespace bench
