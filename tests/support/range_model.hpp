// Random work of several threads on a pool that cuts ranges or segments, beside a model that counts what goes wrong:
//
//   blocks overlap, or a live one has no memory
//   work of another order has memory before its fence has settled
//   a retired address comes again
//   the pool does not know a block, or an error is not one of the driver's
//
// A fault can be planted: then the pool is told something else than the model, and the model has to find it.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "pool/ranges/extents.hpp"

namespace cistern::test {

enum class Planted { none, early_reuse, two_owners, no_retirement };

// Blocks of all threads, and addresses that must not come again.
class RangeBooks {
 public:
  // False: it overlaps another.
  bool add(std::uint64_t first, std::uint64_t bytes) {
    std::lock_guard hold(mutex_);
    const auto next = taken_.lower_bound(first);
    const bool fits = (next == taken_.end() || first + bytes <= next->first) &&
                      (next == taken_.begin() || std::prev(next)->second <= first);
    if (fits) taken_[first] = first + bytes;
    return fits;
  }
  void remove(std::uint64_t first) {
    std::lock_guard hold(mutex_);
    taken_.erase(first);
  }

  std::atomic<int> faults{0}, failures{0}, last_gate{0};

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> taken_;
};

struct RangeWork {
  std::uint64_t large_bytes_max;
  bool strict = false;          // nothing waits
  bool reuses_in_order = true;  // as the pool's setting
  Planted planted = Planted::none;
};

template <class Pool, class Driver>
class RangeModel {
 public:
  using Order = ranges::Order;
  RangeModel(Pool& pool, Driver& driver, RangeBooks& books, const RangeWork& work, unsigned seed, Order own)
      : pool_(pool), driver_(driver), books_(books), work_(work), random_(seed), own_(own) {}

  void step() {
    const bool grows = random_() % 64 ? blocks_.size() < 200 : random_() % 2;
    if (grows && random_() % 2)
      allocate();
    else if (!blocks_.empty())
      free_one();
    // Those of one order settle in that order.
    if (random_() % 3 == 0 && !gates_.empty()) open(gates_, 0);
    if (random_() % 3 == 0 && !unordered_.empty()) open(unordered_, random_() % unordered_.size());
    if (random_() % 512 == 0) pool_.trim(random_() % 2 ? 0 : 1 << 22);
  }
  void end() {
    while (!blocks_.empty()) free_one();
    while (!gates_.empty()) open(gates_, 0);
    while (!unordered_.empty()) open(unordered_, unordered_.size() - 1);
  }

 private:
  struct Block {
    std::uint64_t first, bytes;
  };
  struct Freed {
    std::uint64_t first, bytes;
    Order order;
    int gate;
  };

  void check(bool holds) { books_.faults += !holds; }
  void open(std::vector<int>& gates, std::size_t which) {
    std::erase_if(retired_, [&](const Freed& one) {
      if (one.gate != gates[which]) return false;
      check(driver_.is_accessible(one.first, one.bytes));
      return true;
    });
    driver_.open(gates[which]);
    gates.erase(gates.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void allocate() {
    const std::uint64_t bytes = 1 + (random_() % 4 ? random_() % 20'000 : random_() % work_.large_bytes_max);
    const Order order = work_.strict || random_() % 3 == 0 ? ranges::kAnyOrder : own_;
    const auto answer = pool_.allocate(bytes, order);
    if (!answer.ok) {
      ++books_.failures;
      check(answer.error == Driver::kBroken || answer.error == Driver::kOutOfMemory);
      return;
    }
    check(driver_.is_accessible(answer.first, bytes));
    check(books_.add(answer.first, bytes));
    check_order(answer.first, bytes, order);
    blocks_.push_back({answer.first, bytes});
  }
  void free_one() {
    const std::size_t which = random_() % blocks_.size();
    const Block block = blocks_[which];
    check(driver_.is_accessible(block.first, block.bytes));
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(which));
    if (random_() % 256 == 0) return retire(block);
    if (work_.planted != Planted::two_owners || random_() % 64) books_.remove(block.first);
    const bool waits = !work_.strict && random_() % 2;
    int gate = 0;
    const Order order = work_.strict ? ranges::kAnyOrder : random_() % 3 ? own_ : ranges::kNoOrder;
    if (waits) {
      gate = ++books_.last_gate;
      if (work_.planted != Planted::early_reuse) driver_.close(gate);
      (order == ranges::kNoOrder ? unordered_ : gates_).push_back(gate);
      freed_.push_back({block.first, block.bytes, order, gate});
    }
    check(pool_.deallocate(block.first, order, {gate}, waits));
  }
  // Its addresses stay taken. Behind a fence the memory stays, too.
  void retire(const Block& block) {
    if constexpr (requires { pool_.retire(block.first, {0}); })
      if (!work_.strict && work_.planted == Planted::none && random_() % 2) {
        const int gate = ++books_.last_gate;
        driver_.close(gate);
        unordered_.push_back(gate);
        retired_.push_back({block.first, block.bytes, ranges::kNoOrder, gate});
        return check(pool_.retire(block.first, {gate}));
      }
    check(work_.planted == Planted::no_retirement ? pool_.deallocate(block.first, ranges::kAnyOrder, {}, false)
                                                  : pool_.retire(block.first));
  }
  void check_order(std::uint64_t first, std::uint64_t bytes, Order order) {
    std::erase_if(freed_, [&](const Freed& one) {
      const bool is_closed = std::find(gates_.begin(), gates_.end(), one.gate) != gates_.end() ||
                             std::find(unordered_.begin(), unordered_.end(), one.gate) != unordered_.end();
      const bool overlaps = one.first < first + bytes && first < one.first + one.bytes;
      if (is_closed && overlaps) check(work_.reuses_in_order && order != ranges::kAnyOrder && one.order == order);
      return !is_closed || overlaps;
    });
  }

  Pool& pool_;
  Driver& driver_;
  RangeBooks& books_;
  const RangeWork work_;
  std::mt19937_64 random_;
  const Order own_;
  std::vector<Block> blocks_;
  std::vector<Freed> freed_, retired_;
  std::vector<int> gates_, unordered_;
};

// So many steps in each thread; then all is given back.
template <class Pool, class Driver>
void run_range_models(Pool& pool, Driver& driver, RangeBooks& books, const RangeWork& work, int threads, long steps,
                      unsigned seed) {
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&, i] {
      RangeModel<Pool, Driver> model(pool, driver, books, work, seed + static_cast<unsigned>(i),
                                     static_cast<ranges::Order>(i + 1));
      for (long step = 0; step < steps; ++step) model.step();
      model.end();
    });
  for (std::thread& thread : all) thread.join();
  books.faults += driver.wrong_calls;
  driver.fail_every = 0;
  pool.trim(0);
  books.faults += pool.figures().live_bytes != 0;
}

}  // namespace cistern::test
