// Replays lifetimes of buffers through the range pool over a driver that only counts: no GPU is involved, and no
// memory.
//
//   replay FILE.csv PASSES strict|deferred|stream [DELAY [STREAMS]]
//
// strict: freed memory can be used again immediately. deferred: a fence has to settle first. stream: the same, but work
// of the same stream need not wait for it. A fence settles DELAY steps of the trace after the free. Buffers have
// STREAMS streams in turn. The result is one JSON object: the most that was live (in use, until its fence settled) and
// that was mapped, the driver's calls, and nanoseconds for each call of the pool.
#include <chrono>
#include <cstring>
#include <deque>

#include "bench/trace.hpp"
#include "pool/ranges/range_pool.hpp"

namespace {

using cistern::Acquired;
using cistern::Settled;
using cistern::ranges::kAnyOrder;
using cistern::ranges::Order;

// Handles are numbers, and nothing is mapped anywhere.
class Counting {
 public:
  using Handle = int;
  using Error = int;
  struct Fence {
    long settles_at = 0;
  };
  static std::uint64_t granularity() { return std::uint64_t{2} << 20; }
  Acquired<Handle, Error> create(std::uint64_t) { return {++handles_, 0, true}; }
  void destroy(Handle) {}
  static Error map(std::uint64_t, std::uint64_t, Handle) { return 0; }
  static Error allow_access(std::uint64_t, std::uint64_t) { return 0; }
  static Error unmap(std::uint64_t, std::uint64_t) { return 0; }
  Settled settled(const Fence& fence) const { return fence.settles_at <= now ? Settled::yes : Settled::no; }
  static bool failed(Error error) { return error != 0; }
  static bool out_of_memory(Error) { return false; }
  static Error no_addresses() { return 1; }

  long now = 0;

 private:
  int handles_ = 0;
};

// The bytes that the program has, and those that work may still use: what no pool can do without.
class Used {
 public:
  void add(std::uint64_t bytes) {
    used_ += bytes;
    peak_ = std::max(peak_, used_);
  }
  void release(std::uint64_t bytes, long at) { later_.push_back({at, bytes}); }
  void advance(long now) {
    for (; !later_.empty() && later_.front().first <= now; later_.pop_front()) used_ -= later_.front().second;
  }
  std::uint64_t peak() const { return peak_; }

 private:
  std::deque<std::pair<long, std::uint64_t>> later_;
  std::uint64_t used_ = 0, peak_ = 0;
};

[[noreturn]] void usage() {
  std::fputs("usage: replay FILE.csv PASSES strict|deferred|stream [DELAY [STREAMS]]\n", stderr);
  std::exit(2);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4 || count > 6) usage();
  const bench::Trace trace = bench::read_trace(arguments[1]);
  const int passes = std::atoi(arguments[2]);
  const std::string order_name = arguments[3];
  const long delay = count > 4 ? std::atol(arguments[4]) : 0;
  const std::size_t streams = count > 5 ? static_cast<std::size_t>(std::max(1, std::atoi(arguments[5]))) : 1;
  const bool strict = order_name == "strict", by_stream = order_name == "stream";
  if (!strict && !by_stream && order_name != "deferred") usage();

  Counting driver;
  cistern::ranges::RangeSettings settings{std::uint64_t{1} << 40, std::uint64_t{1} << 44};
  settings.reuse_in_order = by_stream;
  cistern::ranges::RangePool<Counting> pool(driver, settings);
  std::vector<std::uint64_t> addresses(trace.bytes.size());
  Used used;
  long calls = 0;
  std::chrono::nanoseconds taken{0};
  for (int pass = 0; pass < passes; ++pass)
    for (const bench::Event& event : trace.events) {
      ++driver.now;
      used.advance(driver.now);
      const Order order = strict ? kAnyOrder : 1 + event.buffer % streams;
      const auto began = std::chrono::steady_clock::now();
      if (event.begins) {
        const auto block = pool.allocate(trace.bytes[event.buffer], order);
        if (!block.ok) return std::fprintf(stderr, "out of addresses\n"), 1;
        addresses[event.buffer] = block.first;
      } else {
        pool.deallocate(addresses[event.buffer], order, {driver.now + delay}, !strict);
      }
      taken += std::chrono::steady_clock::now() - began;
      ++calls;
      if (event.begins)
        used.add(trace.bytes[event.buffer]);
      else
        used.release(trace.bytes[event.buffer], strict ? driver.now : driver.now + delay);
    }
  const cistern::ranges::RangeFigures figures = pool.figures();
  std::printf(
      "{\"calls\": %ld, \"used_peak_bytes\": %llu, \"mapped_peak_bytes\": %llu, \"driver_calls\": %llu, "
      "\"moved\": %llu, \"hits\": %llu, \"ns_per_call\": %.0f}\n",
      calls, static_cast<unsigned long long>(used.peak()), static_cast<unsigned long long>(figures.mapped_peak),
      static_cast<unsigned long long>(figures.driver_calls()), static_cast<unsigned long long>(figures.moved),
      static_cast<unsigned long long>(figures.hits),
      static_cast<double>(taken.count()) / static_cast<double>(std::max(calls, 1L)));
}
