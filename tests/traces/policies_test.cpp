// Policies that bench/replay compares, over random calls: live blocks never overlap, and nothing is handed to work that
// may still meet the work before. The model of PyTorch's allocator goes to the driver when that would.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "bench/policies/driver_alone.hpp"
#include "bench/policies/need.hpp"
#include "bench/policies/ranges.hpp"
#include "bench/policies/segments.hpp"
#include "bench/policies/torch_model.hpp"
#include "bench/policies/whole_blocks.hpp"
#include "tests/support/random.hpp"

namespace bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kMuch = std::uint64_t{64} << 30;

struct Way {
  const char* name;
  MadePolicy (*make)(Device&, Order);
  bool has_own_order;  // by stream, whatever is asked for
  std::uint64_t unit;  // the memory up to the next multiple of it is the block's, too
};
const Way kWays[] = {
    {"driver", [](Device& on, Order by) -> MadePolicy { return std::make_unique<DriverAlone>(on, by); }, false,
     2 * kMiB},
    {"blocks", [](Device& on, Order by) -> MadePolicy { return std::make_unique<WholeBlocks>(on, by); }, false,
     2 * kMiB},
    {"ranges", [](Device& on, Order by) -> MadePolicy { return std::make_unique<Ranges>(on, by); }, false, 512},
    {"segments", [](Device& on, Order by) -> MadePolicy { return std::make_unique<Segments>(on, by); }, false, 512},
    {"torch", [](Device& on, Order by) -> MadePolicy { return std::make_unique<TorchModel>(on, by, false); }, true,
     512},
    {"expandable", [](Device& on, Order by) -> MadePolicy { return std::make_unique<TorchModel>(on, by, true); }, true,
     512},
};

// Blocks by their first address, and who may use what was freed.
class Model {
 public:
  Model(const Device& device, Order order, std::uint64_t unit) : device_(device), order_(order), unit_(unit) {}

  // Why a block must not be there; null: it may.
  const char* take(std::uint64_t first, std::uint64_t wanted, unsigned stream) {
    const std::uint64_t bytes = rounded_up(wanted, unit_);
    const auto behind = live_.lower_bound(first);
    if (behind != live_.end() && behind->first < first + bytes) return "it reaches into the next live block";
    if (behind != live_.begin() && std::prev(behind)->first + std::prev(behind)->second > first)
      return "it begins in a live block";
    live_[first] = bytes;
    const char* wrong = nullptr;
    std::vector<Freed> rest;
    for (const Freed& freed : freed_) {
      const std::uint64_t end = freed.first + freed.bytes, taken_end = first + bytes;
      if (freed.first >= taken_end || first >= end) {
        rest.push_back(freed);
        continue;
      }
      const bool in_order = order_ == Order::strict || (order_ == Order::stream && freed.stream == stream);
      if (!in_order && !device_.has_ended(freed.moment)) wrong = "work may still use it";
      // The taken part is the new block's now, whose free will come behind all work before it.
      if (freed.first < first) rest.push_back({freed.first, first - freed.first, freed.moment, freed.stream});
      if (taken_end < end) rest.push_back({taken_end, end - taken_end, freed.moment, freed.stream});
    }
    freed_ = std::move(rest);
    return wrong;
  }
  void free(std::uint64_t first, unsigned stream) {
    const auto block = live_.find(first);
    freed_.push_back({first, block->second, device_.now(), stream});
    live_.erase(block);
    std::erase_if(freed_, [&](const Freed& freed) { return device_.has_ended(freed.moment); });
  }

 private:
  struct Freed {
    std::uint64_t first, bytes, moment;
    unsigned stream;
  };
  const Device& device_;
  const Order order_;
  const std::uint64_t unit_;
  std::map<std::uint64_t, std::uint64_t> live_;
  std::vector<Freed> freed_;
};

struct Live {
  std::uint64_t first, bytes;
  unsigned stream;
};

// The reason why the first wrong block must not be there; null: all may. `checked`: the order that the model knows.
const char* after_random_calls(const Way& way, Order order, Order checked, unsigned seed, std::uint64_t memory) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> sizes(12, 2.5);
  Device device(memory, 20);
  const MadePolicy policy = way.make(device, order);
  Model model(device, checked, way.unit);
  std::vector<Live> live;
  std::uint64_t failed = 0;
  for (int i = 0; i < 20'000; ++i) {
    device.step();
    if (random() % 100 < (live.size() < 150 ? 60 : 40) || live.empty()) {
      const std::uint64_t bytes = 1 + static_cast<std::uint64_t>(std::min(sizes(random), 64.0 * kMiB));
      const unsigned stream = random() % 2;
      const auto first = policy->allocate(bytes, stream);
      failed += !first;
      if (!first) continue;
      if (const char* const wrong = model.take(*first, bytes, stream)) return wrong;
      live.push_back({*first, bytes, stream});
    } else {
      std::swap(live[random() % live.size()], live.back());
      const Live block = live.back();
      live.pop_back();
      const unsigned stream = random() % 8 ? block.stream : 1 - block.stream;
      model.free(block.first, stream);
      policy->deallocate(block.first, block.bytes, stream);
    }
    EXPECT_LE(device.reserved(), memory);
  }
  EXPECT_EQ(failed > 0, memory != kMuch);
  for (const Live& block : live) policy->deallocate(block.first, block.bytes, block.stream);
  return nullptr;
}

TEST(Policies, HandOutNothingThatIsStillInUse) {
  const unsigned seed = cistern::test::new_seed();
  for (const Way& way : kWays)
    for (const Order order : {Order::strict, Order::deferred, Order::stream})
      for (const std::uint64_t memory : {kMuch, 96 * kMiB}) {
        const Order checked = order == Order::deferred && way.has_own_order ? Order::stream : order;
        const char* const wrong = after_random_calls(way, order, checked, seed, memory);
        ASSERT_EQ(wrong, nullptr) << wrong << ": " << way.name << ", order " << static_cast<int>(order) << ", seed "
                                  << seed;
      }
}

TEST(Policies, TheModelSeesOneThatHandsOutTooEarly) {
  const unsigned seed = cistern::test::new_seed();
  const Way& ranges = kWays[2];
  for (const auto& [order, checked] :
       {std::pair(Order::strict, Order::deferred), {Order::strict, Order::stream}, {Order::stream, Order::deferred}})
    EXPECT_STREQ(after_random_calls(ranges, order, checked, seed, kMuch), "work may still use it") << "seed " << seed;
}

TEST(Policies, AllMemoryGoesBackBeforeAnAllocationFails) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    Device device(64 * kMiB, 0);
    const MadePolicy policy = way.make(device, Order::strict);
    std::vector<std::uint64_t> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(policy->allocate(10 * kMiB, 0).value());
    for (const std::uint64_t block : blocks) policy->deallocate(block, 10 * kMiB, 0);
    const auto all = policy->allocate(60 * kMiB, 0);
    EXPECT_TRUE(all);
    EXPECT_FALSE(policy->allocate(30 * kMiB, 0));
  }
}

class Torch : public testing::Test {
 protected:
  std::uint64_t take(std::uint64_t bytes, unsigned stream = 0) { return model.allocate(bytes, stream).value(); }
  Device device{kMuch, 20};
  TorchModel model{device, Order::stream, false};
};

TEST_F(Torch, SegmentsHaveItsSizes) {
  take(512);
  EXPECT_EQ(device.reserved(), 2 * kMiB);
  take(kMiB);
  EXPECT_EQ(device.reserved(), 2 * kMiB) << "the rest of the first segment";
  take(kMiB + 1);
  EXPECT_EQ(device.reserved(), 22 * kMiB);
  take(10 * kMiB - 512);
  EXPECT_EQ(device.reserved(), 22 * kMiB);
  take(11 * kMiB);
  EXPECT_EQ(device.reserved(), 34 * kMiB);
}

TEST_F(Torch, ARestOfAMiBStaysWithALargeBlock) {
  const std::uint64_t block = take(20 * kMiB);
  model.deallocate(block, 20 * kMiB, 0);
  EXPECT_EQ(take(19 * kMiB), block);
  take(kMiB + 512);
  EXPECT_EQ(device.reserved(), 40 * kMiB);
}

TEST_F(Torch, StreamsShareNothing) {
  model.deallocate(take(20 * kMiB), 20 * kMiB, 0);
  take(20 * kMiB, 1);
  EXPECT_EQ(device.calls(Call::allocate), 2u);
  take(20 * kMiB, 0);
  EXPECT_EQ(device.calls(Call::allocate), 2u);
}

TEST_F(Torch, ABlockThatAnotherStreamUsedWaitsForIt) {
  const std::uint64_t block = take(20 * kMiB);
  model.deallocate(block, 20 * kMiB, 1);
  EXPECT_NE(take(20 * kMiB), block);
  for (int i = 0; i < 20; ++i) device.step();
  EXPECT_EQ(take(20 * kMiB), block);
}

TEST(TorchExpandable, MapsPagesBehindWhatItHas) {
  Device device(kMuch, 0);
  TorchModel model(device, Order::stream, true);
  const std::uint64_t first = model.allocate(30 * kMiB, 0).value();
  EXPECT_EQ(device.reserved(), 40 * kMiB);
  EXPECT_EQ(model.allocate(25 * kMiB, 0).value(), first + 30 * kMiB);
  EXPECT_EQ(device.reserved(), 60 * kMiB);
  EXPECT_EQ(device.calls(Call::create), 3u);
  EXPECT_EQ(device.calls(Call::allow_access), 2u);
}

TEST(Need, CountsWhatTheOrderHoldsBack) {
  for (const auto& [order, all] : {std::pair(Order::strict, 10), {Order::deferred, 20}, {Order::stream, 10}}) {
    Device device(kMuch, 5);
    Need need(device, order);
    need.allocate(10, 0);
    need.deallocate(10, 0);
    need.allocate(10, 0);
    EXPECT_EQ(need.in_all(), static_cast<std::uint64_t>(all));
    need.deallocate(10, 0);
    need.allocate(10, 1);
    EXPECT_EQ(need.in_all(), static_cast<std::uint64_t>(order == Order::strict ? 10 : all + 10));
    for (int i = 0; i < 5; ++i) device.step();
    need.allocate(10, 1);
    EXPECT_EQ(need.in_all(), static_cast<std::uint64_t>(order == Order::strict ? 20 : all + 10));
    EXPECT_EQ(need.live_peak(), 20u);
  }
}

}  // namespace
}  // namespace bench
