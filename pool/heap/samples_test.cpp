// Sampled blocks: how often they are drawn, that their weights give totals, and what becomes of them. The pool is one
// per process and sampling is started once in it, so each test runs in a child of its own.
#include "pool/heap/samples.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "pool/base/page_size.hpp"
#include "tests/support/child.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/worker.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::in_child;
using test::put;

constexpr std::uint64_t kInterval = 64 * 1024;

// --- The policy's side: the site of a thread's next block, and whether it is to have one
thread_local std::uint32_t site_now = 1;
thread_local bool refusing = false;
thread_local bool captured = false;
std::atomic<std::uint32_t> clock_now{0};

bool capture(std::uint32_t* site, std::uint32_t) {
  *site = site_now;
  captured = true;
  return !refusing;
}
std::uint32_t now_ms() { return clock_now.load(); }

void start(std::uint64_t interval_bytes, bool paced = false) {
  put(get(1));
  this_heap()->random = 20261121;  // the seed of this thread's samples
  start_sampling({interval_bytes, paced, capture, now_ms});
}

// --- Samples, by block
using Samples = std::map<const void*, Sample>;
Samples samples_now() {
  Samples samples;
  visit_samples([](void* into, const Sample& sample) { static_cast<Samples*>(into)->emplace(sample.block, sample); },
                &samples);
  return samples;
}

struct Totals {
  double blocks = 0, bytes = 0;
};
Totals estimated(std::uint32_t site) {
  Totals totals;
  for (const auto& [block, sample] : samples_now()) {
    if (sample.site != site) continue;
    totals.blocks += sample.weight;
    totals.bytes += sample.weight * static_cast<double>(sample.usable_bytes);
  }
  return totals;
}

std::uint64_t handed_out_sampled() {
  std::uint64_t sum = 0;
  for (unsigned id = 0; id < kClasses; ++id) sum += sampled_allocations(id);
  return sum;
}

const Page& page_of(const void* block) { return *spot_of(block).page; }

bool is_sampled(const void* block) { return page_of(block).state == PageState::sampled; }

std::size_t sampled_pages() {
  std::size_t count = 0;
  for (Slice at = region_begin(); at < region_end(); ++at) count += page_at(at)->state == PageState::sampled;
  return count;
}

// --- Distances
TEST(HostSamples, ALongestIntervalIsNoNegativeOne) {
  in_child([] {
    start(UINT64_MAX);
    std::uint64_t random = 20261121;
    for (int i = 0; i < 1000; ++i) ASSERT_GT(draw_distance(random, 0), std::int64_t{1} << 40);
  });
}

TEST(HostSamples, LieAtExponentialDistances) {
  in_child([] {
    for (const std::uint64_t interval : {std::uint64_t{4096}, kInterval, std::uint64_t{512 * 1024}}) {
      start(interval);
      std::uint64_t random = 20261121;
      SCOPED_TRACE("seed " + std::to_string(random));
      constexpr int kCount = 100'000;
      const auto mean_wanted = static_cast<double>(interval);
      double sum = 0, squares = 0;
      int longer = 0, longer_still = 0;
      for (int i = 0; i < kCount; ++i) {
        const std::int64_t distance = draw_distance(random, 0);
        ASSERT_GE(distance, 1);
        const auto value = static_cast<double>(distance);
        sum += value;
        squares += value * value;
        longer += value > mean_wanted;
        longer_still += value > 3 * mean_wanted;
      }
      const double mean = sum / kCount;
      EXPECT_NEAR(mean / mean_wanted, 1, 0.05);
      EXPECT_NEAR(std::sqrt(squares / kCount - mean * mean) / mean_wanted, 1, 0.05);
      EXPECT_NEAR(longer / double{kCount}, std::exp(-1), 0.02);
      EXPECT_NEAR(longer_still / double{kCount}, std::exp(-3), 0.01);
    }
  });
}

TEST(HostSamples, AreNoneWithoutAnInterval) {
  in_child([] {
    start(0);
    std::uint64_t random = 1;
    EXPECT_EQ(draw_distance(random, 0), INT64_MAX);
    for (int i = 0; i < 10'000; ++i) get(100);
    get(1 << 20);
    EXPECT_TRUE(samples_now().empty());
    EXPECT_EQ(handed_out_sampled(), 0u);
  });
}

// --- Totals
TEST(HostSamples, StandForAllBlocks) {
  in_child([] {
    start(kInterval);
    struct Load {
      std::uint32_t site;
      std::size_t bytes;
      int count;
    };
    // About 1500 samples each: a tenth is four standard deviations.
    constexpr Load kLoads[] = {{11, 16, 6'000'000}, {12, 112, 900'000},  {13, 1000, 100'000},
                               {14, 4'200, 22'000}, {15, 20'000, 5'000}, {16, 100'000, 1'000}};
    for (const Load& load : kLoads) {
      site_now = load.site;
      for (int i = 0; i < load.count; ++i) get(load.bytes);
      const auto usable = static_cast<double>(usable_bytes(get(load.bytes)));
      const Totals totals = estimated(load.site);
      EXPECT_NEAR(totals.blocks / load.count, 1, 0.1) << load.bytes;
      EXPECT_NEAR(totals.bytes / (usable * load.count), 1, 0.1) << load.bytes;
    }
    for (const auto& [block, sample] : samples_now()) {
      EXPECT_GE(sample.weight, 1);
      EXPECT_GE(sample.usable_bytes, sample.requested_bytes);
      EXPECT_EQ(usable_bytes(const_cast<void*>(block)), sample.usable_bytes);
    }
  });
}

// A class that fetches many blocks together counts them together. A sample that is drawn meanwhile goes to no other
// class.
TEST(HostSamples, FallToRareClassesAsOftenAsTheirBytesSay) {
  in_child([] {
    start(kInterval);
    struct Load {
      std::size_t bytes;
      int each;  // one in so many
      double blocks = 0, estimate = 0;
    };
    for (Load(&loads)[2] : std::array<Load[2], 4>{
             {{{64, 1}, {900, 50}}, {{64, 1}, {4'800, 50}}, {{2'000, 1}, {12'000, 20}}, {{32'000, 1}, {1'152, 2}}}}) {
      for (int i = 0; i < 400'000; ++i) {
        for (Load& load : loads) {
          if (i % load.each) continue;
          captured = false;
          void* const block = get(load.bytes);
          ++load.blocks;
          if (captured) load.estimate += sample_weight(class_bytes(class_of(load.bytes)), 0);
          put(block);
        }
      }
      for (const Load& load : loads) EXPECT_NEAR(load.estimate / load.blocks, 1, 0.35) << load.bytes;
    }
  });
}

TEST(HostSamples, AreAsManyWhereThreadsComeAndGo) {
  in_child([] {
    start(kInterval);
    for (const std::size_t bytes : {std::size_t{900}, std::size_t{6'000}}) {
      std::atomic<int> samples{0};
      const int threads = 6'000;
      for (int i = 0; i < threads; ++i) {
        std::thread([&] {
          captured = false;
          put(get(bytes));
          samples += captured;
        }).join();
      }
      const double weight = sample_weight(class_bytes(class_of(bytes)), 0);
      EXPECT_NEAR(samples * weight / threads, 1, 0.4) << bytes;
    }
  });
}

TEST(HostSamples, AreAllBlocksOfTheIntervalAndMoreForThemselves) {
  in_child([] {
    constexpr std::uint64_t kLargeInterval = 512 * 1024;
    start(kLargeInterval);
    site_now = 21;
    std::vector<void*> blocks;
    for (int i = 0; i < 200; ++i) blocks.push_back(get(kLargeInterval + static_cast<std::size_t>(i) * 4096));
    const Samples samples = samples_now();
    for (void* const block : blocks) {
      ASSERT_EQ(samples.count(block), 1u);
      EXPECT_EQ(samples.at(block).weight, 1);
      put(block);
    }
    EXPECT_TRUE(samples_now().empty());
    // One that grows into it.
    int grown = 0;
    for (int i = 0; i < 50; ++i) {
      void* const small = get(kLargeInterval / 4);
      if (samples_now().count(small)) continue;
      void* const large = reallocate(small, 2 * kLargeInterval);
      EXPECT_EQ(samples_now().count(large), 1u);
      ++grown;
    }
    EXPECT_GT(grown, 0);
  });
}

// Each is freed before the next is allocated; so many take a millisecond. The facts in samples, and the number of
// samples.
struct Paced {
  double blocks = 0, estimate = 0;
  int samples = 0;
};
Paced hand_out(std::size_t bytes, int per_ms, int ms) {
  Paced paced;
  for (int i = 0; i < ms * per_ms; ++i) {
    if (i % per_ms == 0) ++clock_now;
    captured = false;
    void* const block = get(bytes);
    ++paced.blocks;
    if (captured) {
      const Samples samples = samples_now();
      paced.estimate += samples.at(block).weight;
      ++paced.samples;
    }
    put(block);
  }
  return paced;
}

TEST(HostSamples, AreFewPerTimeHoweverMuchIsHandedOutAndStandForAllStill) {
  for (const std::size_t bytes : {48ul, 3'000ul, 32'000ul, 40'000ul, 60'000ul}) {
    in_child([bytes] {
      start(kInterval, true);
      const int ms = 60, per_ms = bytes < 1000 ? 100'000 : 20'000;
      hand_out(bytes, per_ms, 8);
      const Paced fast = hand_out(bytes, per_ms, ms);
      EXPECT_LT(fast.samples, ms * 2 * static_cast<int>(kSamplesPerMs)) << bytes;
      EXPECT_GT(fast.samples, ms * static_cast<int>(kSamplesPerMs) / 4) << bytes;
      EXPECT_NEAR(fast.estimate / fast.blocks, 1, 0.12) << bytes;
    });
  }
}

TEST(HostSamples, ComeAtTheirIntervalAgainWhenLittleIsHandedOut) {
  for (const std::size_t bytes : {3'000ul, 32'000ul, 40'000ul}) {
    in_child([bytes] {
      start(kInterval, true);
      hand_out(bytes, 100'000, 10);
      const auto doublings = this_heap()->pace.doublings;
      EXPECT_GT(doublings, 5);
      const int interval_in_blocks = static_cast<int>(kInterval / bytes + 1);
      hand_out(bytes, 2, interval_in_blocks << doublings >> 3);  // it looks at its pace by then
      EXPECT_EQ(this_heap()->pace.doublings, 0);
      const Paced slow = hand_out(bytes, 2, 500 * interval_in_blocks);
      EXPECT_NEAR(slow.samples * sample_weight(usable_bytes(get(bytes)), 0) / slow.blocks, 1, 0.15) << bytes;
      EXPECT_NEAR(slow.estimate / slow.blocks, 1, 0.15) << bytes;
    });
  }
}

// Live bytes, not those ever handed out: what was freed leaves the estimate.
TEST(HostSamples, LeaveWithTheirBlocks) {
  in_child([] {
    start(kInterval);
    site_now = 31;
    std::vector<void*> blocks(200'000);
    for (void*& block : blocks) block = get(200);
    EXPECT_GT(estimated(31).blocks, 150'000);
    EXPECT_GT(sampled_pages(), 0u);
    for (void* const block : blocks) ASSERT_EQ(put(block), Freed::yes);
    EXPECT_EQ(estimated(31).blocks, 0);
    EXPECT_LE(sampled_pages(), 1u);  // the last page of a class is kept
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostSamples, AreMissingWhereCapturingIsRefused) {
  in_child([] {
    start(1);
    refusing = true;
    std::vector<void*> blocks;
    for (int i = 0; i < 1000; ++i) blocks.push_back(get(static_cast<std::size_t>(i * 7)));
    void* const large = get(1 << 20);
    EXPECT_TRUE(samples_now().empty());
    for (void* const block : blocks) EXPECT_EQ(put(block), Freed::yes);
    EXPECT_EQ(put(large), Freed::yes);
    refusing = false;
    void* const block = get(24);
    EXPECT_EQ(samples_now().count(block), 1u);
  });
}

TEST(HostSamples, OfBlocksFromBeforeAForkAreInherited) {
  in_child([] {
    start(64);
    const auto get_each = [] {  // in a page of its own, in place, large
      std::vector<void*> blocks;
      for (const std::size_t bytes : {3000, 20'000, 1 << 20}) blocks.push_back(get(bytes));
      return blocks;
    };
    const std::vector<void*> old = get_each();
    for (void* const block : old) EXPECT_FALSE(samples_now().at(block).inherited);
    samples_before_fork();
    samples_after_fork_in_child();
    const std::vector<void*> young = get_each();
    const Samples seen = samples_now();
    for (void* const block : old) EXPECT_TRUE(seen.at(block).inherited);
    for (void* const block : young) EXPECT_FALSE(seen.at(block).inherited);
  });
}

// --- Every block
TEST(HostSamples, AreExactWhenEveryBlockIsOne) {
  in_child([] {
    start(1);
    const std::uint64_t seed = 7;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::map<const void*, Sample> wanted;
    std::vector<void*> blocks;
    std::uint64_t handed_out = 0;
    for (int step = 0; step < 60'000; ++step) {
      if (blocks.empty() || random() % 5 < 3) {
        const std::size_t bytes = random() % 200 == 0 ? 40'000 + random() % 200'000 : random() % 3000;
        site_now = 1 + static_cast<std::uint32_t>(random() % 50);
        clock_now = static_cast<std::uint32_t>(step);
        void* const block = get(bytes);
        ASSERT_NE(block, nullptr);
        handed_out += bytes <= kSmallMax;
        const std::size_t usable = usable_bytes(block);
        ASSERT_GE(usable, bytes);
        const Sample sample{block, usable, bytes, site_now, clock_now.load(), 1};
        ASSERT_TRUE(wanted.emplace(block, sample).second) << "handed out twice";
        test::fill(block, bytes, static_cast<std::uint64_t>(step));
        blocks.push_back(block);
      } else {
        const std::size_t at = random() % blocks.size();
        wanted.erase(blocks[at]);
        ASSERT_TRUE(is_live(blocks[at]));
        ASSERT_EQ(put(blocks[at]), Freed::yes);
        blocks[at] = blocks.back();
        blocks.pop_back();
      }
    }
    const Samples seen = samples_now();
    ASSERT_EQ(seen.size(), wanted.size());
    for (const auto& [block, sample] : wanted) {
      const auto found = seen.find(block);
      ASSERT_NE(found, seen.end());
      EXPECT_EQ(found->second.site, sample.site);
      EXPECT_EQ(found->second.usable_bytes, sample.usable_bytes);
      EXPECT_EQ(found->second.requested_bytes, sample.requested_bytes);
      EXPECT_EQ(found->second.born_ms, sample.born_ms);
      EXPECT_EQ(found->second.weight, 1);
    }
    EXPECT_EQ(handed_out_sampled(), handed_out);
    for (void* const block : blocks) ASSERT_EQ(put(block), Freed::yes);
    EXPECT_TRUE(samples_now().empty());
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostSamples, KeepTheSizeThatWasAskedForLast) {
  in_child([] {
    start(1);
    void* block = get(1000);
    block = reallocate(block, 900);
    EXPECT_EQ(samples_now().at(block).requested_bytes, 900u);
    block = reallocate(block, 5000);
    ASSERT_EQ(samples_now().count(block), 1u);
    EXPECT_EQ(samples_now().at(block).requested_bytes, 5000u);
    EXPECT_EQ(samples_now().size(), 1u);
  });
}

TEST(HostSamples, KnowWhatTheNextCallFreed) {
  in_child([] {
    start(1);
    const std::uint64_t before = account().temporary_blocks;
    void* const kept = get(100);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(put(get(50)), Freed::yes);
    EXPECT_EQ(account().temporary_blocks - before, 10u);
    void* const first = get(50);
    void* const second = get(50);
    EXPECT_EQ(put(first), Freed::yes);
    EXPECT_EQ(put(second), Freed::yes) << "not the next call any more";
    EXPECT_EQ(put(kept), Freed::yes);
    EXPECT_EQ(account().temporary_blocks - before, 10u);
  });
}

// A pointer just behind what was asked for leads to no other block.
TEST(HostSamples, FillNoBlockToItsEnd) {
  in_child([] {
    start(1);
    for (const std::size_t bytes : {std::size_t{16}, std::size_t{128}, std::size_t{1024}, std::size_t{4096}}) {
      void* const block = get(bytes);
      EXPECT_GT(usable_bytes(block), bytes);
      EXPECT_EQ(put(block), Freed::yes);
    }
  });
}

// Pages fill up one after another, and all but the last go back.
TEST(HostSamples, ReleaseTheirPages) {
  in_child([] {
    start(1);
    trim(0);  // other threads' trims left this to do
    for (const std::size_t bytes : {std::size_t{15}, std::size_t{1000}, kSmallMax}) {
      const unsigned id = class_of(bytes);
      const std::size_t before = sampled_pages(), in_use = region_figures().in_use_bytes;
      std::vector<void*> blocks(page_capacity(id) * 5);
      for (void*& block : blocks) block = get(bytes);
      EXPECT_EQ(sampled_pages() - before, 5u);
      EXPECT_EQ(region_figures().in_use_bytes - in_use, 5 * page_slices(id) * kSliceBytes);
      std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(3));
      for (void* const block : blocks) ASSERT_EQ(put(block), Freed::yes);
      EXPECT_EQ(sampled_pages() - before, 1u);
      // And the kept one is used again.
      void* const again = get(bytes);
      EXPECT_EQ(sampled_pages() - before, 1u);
      put(again);
    }
    EXPECT_EQ(test::region_fault(), "");
  });
}

// --- Where sampled blocks lie, when not every block is one. The first block after a short interval is due.
constexpr std::uint64_t kShort = 2;

// Classes share a page whose cells are larger than their blocks; no query can tell.
TEST(HostSamples, LieInCellsThatDoNotShow) {
  in_child([] {
    start(kShort);
    const test::Live before = test::live_now();
    const std::size_t pages_before = sampled_pages();
    std::vector<void*> blocks;
    for (const std::size_t bytes : {2100, 2500, 3000, 3500, 3800, 4096}) {
      void* const block = get(bytes);
      blocks.push_back(block);
      EXPECT_TRUE(is_sampled(block));
      EXPECT_EQ(usable_bytes(block), class_bytes(class_of(bytes)));
      EXPECT_EQ(samples_now().at(block).usable_bytes, usable_bytes(block));
      EXPECT_EQ(whereabouts(block).block_bytes, usable_bytes(block));
      EXPECT_EQ(samples_now().at(block).requested_bytes, bytes);
      EXPECT_EQ(put(static_cast<char*>(block) + 16), Freed::invalid);
    }
    EXPECT_EQ(sampled_pages() - pages_before, 1u);
    void* const aligned = allocate_aligned(1024, 3000);
    EXPECT_EQ(address_of(aligned) % 1024, 0u);
    EXPECT_TRUE(is_sampled(aligned));
    blocks.push_back(aligned);
    test::Live live;
    for (void* const block : blocks) test::count_block(live, block, 1);
    EXPECT_EQ(test::live_since(before), live);
    for (void* const block : blocks) EXPECT_EQ(put(block), Freed::yes);
    for (void* const block : blocks) EXPECT_EQ(put(block), Freed::double_free);
    EXPECT_TRUE(samples_now().empty());
    EXPECT_EQ(test::live_since(before), test::Live{});
  });
}

// In their places, with all that is asked of blocks there; against a model, freed by the owner and by another thread.
TEST(HostSamples, StayInPlaceAboveASystemPage) {
  in_child([] {
    start(kShort);
    const std::uint64_t seed = 11;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const test::Live live_before = test::live_now();
    const std::size_t pages_before = sampled_pages();
    std::map<void*, Sample> wanted;
    std::vector<void*> blocks;
    test::Worker other;
    for (int step = 0; step < 20'000; ++step) {
      const std::size_t bytes = kFewBlocksAbove + 1 + random() % (kSmallMax - kFewBlocksAbove);
      const std::uint64_t choice = random() % 8;
      if (blocks.empty() || choice < 4) {
        site_now = 1 + static_cast<std::uint32_t>(random() % 50);
        clock_now = static_cast<std::uint32_t>(step);
        void* const block = get(bytes);
        ASSERT_EQ(page_of(block).state, PageState::medium);
        const Sample sample{block, class_bytes(class_of(bytes)), bytes, site_now, clock_now.load(), 1};
        ASSERT_TRUE(wanted.emplace(block, sample).second) << "handed out twice";
        test::fill(block, bytes, static_cast<std::uint64_t>(step));
        blocks.push_back(block);
        continue;
      }
      const std::size_t at = random() % blocks.size();
      void* const block = blocks[at];
      Sample& sample = wanted.at(block);
      ASSERT_EQ(usable_bytes(block), sample.usable_bytes);
      if (choice == 4) {
        sample.requested_bytes = sample.usable_bytes - random() % 100;
        ASSERT_EQ(reallocate(block, sample.requested_bytes), block);
        continue;
      }
      wanted.erase(block);
      blocks[at] = blocks.back();
      blocks.pop_back();
      if (choice < 7) {
        ASSERT_EQ(put(block), Freed::yes);
      } else {
        other.run([&] { EXPECT_EQ(put(block), Freed::yes); });
      }
      ASSERT_NE(put(block), Freed::yes);  // its page may have gone with it
    }
    const Samples seen = samples_now();
    ASSERT_EQ(seen.size(), wanted.size());
    for (const auto& [block, sample] : wanted) {
      ASSERT_EQ(seen.count(block), 1u);
      EXPECT_EQ(seen.at(block).site, sample.site);
      EXPECT_EQ(seen.at(block).usable_bytes, sample.usable_bytes);
      EXPECT_EQ(seen.at(block).requested_bytes, sample.requested_bytes);
      EXPECT_EQ(seen.at(block).born_ms, sample.born_ms);
    }
    EXPECT_EQ(sampled_pages(), pages_before);
    test::Live live;
    for (void* const block : blocks) test::count_block(live, block, 1);
    EXPECT_EQ(test::live_since(live_before), live);
    for (void* const block : blocks) ASSERT_EQ(put(block), Freed::yes);
    EXPECT_TRUE(samples_now().empty());
    EXPECT_EQ(test::region_fault(), "");
  });
}

// Blocks that wait to be handed out before a sample are not all handed out for it.
TEST(HostSamples, LeaveAlmostAllBlocksOfAPageUntouched) {
  in_child([] {
    start(kInterval);
    std::set<void*> ever;
    for (int i = 0; i < 20'000; ++i) {
      void* const one = get(4'800);
      void* const other = get(4'800);
      ever.insert({one, other});
      put(one);
      put(other);
    }
    EXPECT_LE(ever.size(), 6u);
  });
}

// Pages of cells are few and hardly used: what is resident already is left to others.
TEST(HostSamples, TakeUntouchedMemory) {
  in_child([] {
    start(kShort);
    constexpr std::size_t kResident = 8 << 20;
    void* const touched = get(kResident);
    std::memset(touched, 1, kResident);
    put(touched);
    ASSERT_GE(region_figures().dirty_bytes, kResident);
    const void* const block = get(3000);
    ASSERT_TRUE(is_sampled(block));
    std::array<unsigned char, kSliceBytes / kLeastPageBytes> resident;
    ASSERT_EQ(mincore(page_memory(&page_of(block)), kSliceBytes, resident.data()), 0);
    EXPECT_LE(std::ranges::count_if(resident, [](unsigned char page) { return page & 1; }), 1);
  });
}

// --- Misuse
TEST(HostSamples, SeeMisuse) {
  in_child([] {
    start(1);
    std::vector<void*> blocks(100);
    for (void*& block : blocks) block = get(48);
    auto* const block = static_cast<char*>(blocks[50]);
    EXPECT_EQ(put(block + 16), Freed::invalid);
    EXPECT_EQ(put(block + 1), Freed::invalid);
    EXPECT_TRUE(is_live(block));
    EXPECT_EQ(put(block), Freed::yes);
    EXPECT_FALSE(is_live(block));
    EXPECT_EQ(put(block), Freed::double_free);
    EXPECT_EQ(put(block), Freed::double_free);
    EXPECT_EQ(samples_now().size(), 99u);
    // Not handed out twice after all that.
    std::set<void*> again;
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(again.insert(get(48)).second);
    for (void* const other : blocks) EXPECT_EQ(again.count(other), other == block ? again.count(block) : 0u);
  });
}

// --- Threads: blocks freed by others than their makers at the same time, by many more threads than there are locks

// A page may go to a heap while a thread looks whether a sampled block lies in it. Its heap may be any number.
TEST(HostSamples, ArePagesNoLongerWhenTheirStateSaysSo) {
  test::in_child([] {
    void* const block = get(64);
    Page& page = *page_at(static_cast<Slice>(slice_number(block)));
    page.heap = 0xfff1;
    EXPECT_EQ(live_sampled_bytes(page, 0), 0u);
    EXPECT_FALSE(free_sampled(page, 0));
    page.state = PageState::sampled;  // a page of another shard than the one that was locked
    EXPECT_EQ(live_sampled_bytes(page, 0), 0u);
    EXPECT_FALSE(free_sampled(page, 0));
  });
}

TEST(HostSamples, AreExactWithThreads) {
  in_child([] {
    start(1);
    constexpr unsigned kThreads = 12, kRounds = 40, kBlocks = 150;
    struct Box {
      Lock lock;
      std::vector<void*> blocks;
    };
    std::vector<Box> boxes(kThreads);
    std::atomic<std::uint64_t> wrong{0}, sampled{0};
    {
      std::vector<std::jthread> threads;
      for (unsigned number = 0; number < kThreads; ++number)
        threads.emplace_back([&, number] {
          site_now = 100 + number;
          for (unsigned round = 0; round < kRounds; ++round) {
            std::vector<void*> blocks;
            for (unsigned i = 0; i < kBlocks; ++i) {
              void* const block = get(16 * (1 + (i + round) % 40));
              *static_cast<unsigned*>(block) = number;
              // Not all of them are: tests before left heaps without a thread, with blocks dealt before this start.
              sampled += is_sampled(block);
              blocks.push_back(block);
            }
            {
              Box& next = boxes[(number + 1 + round) % kThreads];
              Locked hold(next.lock);
              next.blocks.insert(next.blocks.end(), blocks.begin(), blocks.end());
            }
            std::vector<void*> given;
            {
              Locked hold(boxes[number].lock);
              given.swap(boxes[number].blocks);
            }
            for (void* const block : given) {
              wrong += *static_cast<unsigned*>(block) >= kThreads;
              wrong += put(block) != Freed::yes;
            }
          }
        });
    }
    EXPECT_EQ(wrong.load(), 0u);
    EXPECT_EQ(handed_out_sampled(), sampled.load());
    EXPECT_GT(sampled.load(), kThreads * kRounds * kBlocks / 2);
    std::size_t left = 0;
    for (const Box& box : boxes) left += static_cast<std::size_t>(std::ranges::count_if(box.blocks, is_sampled));
    EXPECT_EQ(samples_now().size(), left);
    for (const Box& box : boxes)
      for (void* const block : box.blocks) EXPECT_EQ(put(block), Freed::yes);
    EXPECT_TRUE(samples_now().empty());
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostSamples, OutliveTheirThread) {
  in_child([] {
    start(1);
    void* block = nullptr;
    {
      test::Worker worker;
      worker.run([&] {
        site_now = 77;
        // As above, the first ones may have been dealt before.
        for (int i = 0; i < 1000 && !(block && is_sampled(block)); ++i) block = get(640);
      });
    }
    ASSERT_EQ(samples_now().count(block), 1u);
    EXPECT_EQ(samples_now().at(block).site, 77u);
    EXPECT_EQ(put(block), Freed::yes);
    EXPECT_TRUE(samples_now().empty());
  });
}

// --- Fork, while others allocate: the child's locks are free and its tables whole
TEST(HostSamples, GoOnInAForkedChild) {
  in_child([] {
    start(1);
    std::atomic<bool> ending{false};
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 3; ++i)
        threads.emplace_back([&] {
          while (!ending) put(get(80));
        });
      void* const from_before = get(333);
      for (int i = 0; i < 30; ++i)
        in_child([&] {
          const std::size_t before = samples_now().size();
          std::vector<void*> blocks(500);
          for (void*& block : blocks) block = get(80);
          EXPECT_EQ(samples_now().size(), before + blocks.size());
          for (void* const block : blocks) EXPECT_EQ(put(block), Freed::yes);
          EXPECT_EQ(samples_now().count(from_before), 1u);
          EXPECT_EQ(put(from_before), Freed::yes);
          EXPECT_EQ(samples_now().size(), before - 1);
        });
      ending = true;
      put(from_before);
    }
    EXPECT_TRUE(samples_now().empty());
  });
}

}  // namespace
}  // namespace cistern::host_pool
