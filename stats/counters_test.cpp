// Counters: figures of one kind, peaks, the clock and the report's size classes.
#include "stats/counters.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <vector>

namespace cistern {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

TEST(ReportClass, EveryClassBeginsBehindTheLimitOfTheOneBefore) {
  for (int i = 0; i + 1 < kReportClasses; ++i) {
    const std::uint64_t limit = detail::kReportClassLimits[i];
    EXPECT_EQ(report_class(limit), i) << limit;
    EXPECT_EQ(report_class(limit + 1), i + 1) << limit;
  }
}

TEST(ReportClass, NamedSizesAreWhereReportsSayTheyAre) {
  EXPECT_STREQ(report_class_name(report_class(1)), "0-4 KiB");
  EXPECT_STREQ(report_class_name(report_class(4 * kKiB + 1)), "4-8 KiB");
  EXPECT_EQ(report_class(1 * kMiB + 1), 10);
  EXPECT_STREQ(report_class_name(10), "1-2 MiB");
  EXPECT_EQ(report_class(33 * kMiB), 15);
  EXPECT_STREQ(report_class_name(15), "32-64 MiB");
  EXPECT_EQ(report_class(512 * kMiB), 20);
  EXPECT_EQ(report_class(UINT64_MAX), 20);
}

TEST(KindCounters, CountsBlocksAndTheirClass) {
  KindCounters counters;
  counters.block_born({64 * kMiB});
  counters.block_born({64 * kMiB});
  counters.block_born({1000});
  counters.block_died({64 * kMiB});
  counters.block_born({0});  // a sub-buffer
  const KindFigures figures = counters.figures("opencl", true);
  EXPECT_EQ(figures.allocations, 4u);
  EXPECT_EQ(figures.frees, 1u);
  EXPECT_EQ(figures.live_blocks, 3u);
  EXPECT_EQ(figures.live_bytes, 64 * kMiB + 1000);
  EXPECT_EQ(figures.peak_bytes, 128 * kMiB + 1000);
  ASSERT_TRUE(figures.peak_at_s.has_value());
  ASSERT_EQ(figures.classes.size(), 2u);
  EXPECT_EQ(figures.classes[0].size_class, 0);
  EXPECT_EQ(figures.classes[0].live_blocks, 1u);
  EXPECT_EQ(figures.classes[1].size_class, 15);
  EXPECT_EQ(figures.classes[1].allocations, 2u);
  EXPECT_EQ(figures.classes[1].live_blocks, 1u);
  EXPECT_EQ(figures.classes[1].high_water_blocks, 2u);
}

TEST(KindCounters, BytesOutliveABlockWhoseChildrenKeepThem) {
  KindCounters counters;
  counters.block_born({2 * kMiB}, /*pool_hit=*/true);
  counters.block_died({0});
  KindFigures figures = counters.figures("opencl", true);
  EXPECT_EQ(figures.live_blocks, 0u);
  EXPECT_EQ(figures.live_bytes, 2 * kMiB);
  counters.bytes_died({2 * kMiB});
  figures = counters.figures("opencl", true);
  EXPECT_EQ(figures.live_bytes, 0u);
  EXPECT_EQ(figures.pool_hits, 1u);
  ASSERT_EQ(figures.classes.size(), 1u);
  EXPECT_EQ(figures.classes[0].hits, 1u);
  EXPECT_EQ(figures.classes[0].live_blocks, 0u);
}

TEST(KindCounters, UnusedFiguresDoNotExist) {
  KindCounters counters;
  counters.count_unpooled(Unpooled::host_pointer);
  counters.count_unpooled(Unpooled::host_pointer);
  const KindFigures figures = counters.figures("opencl", true);
  EXPECT_FALSE(figures.peak_at_s.has_value());
  EXPECT_TRUE(figures.classes.empty());
  ASSERT_EQ(figures.unpooled.size(), 1u);
  EXPECT_STREQ(figures.unpooled[0].reason, "host pointer");
  EXPECT_EQ(figures.unpooled[0].count, 2u);
}

TEST(KindCounters, TheWorstMomentIsAfterAFreeWhateverComesNext) {
  KindCounters counters;
  counters.block_born({100});
  EXPECT_FALSE(counters.worst_moment({0, 500}));
  counters.block_born({50});
  counters.block_died_locked({100}, 3'000'000'000, 160);
  counters.block_died_locked({50}, 4'000'000'000);  // its memory went back
  const auto worst = counters.worst_moment({0, 500});
  ASSERT_TRUE(worst);
  EXPECT_EQ(worst->reserved_bytes, 160u);
  EXPECT_EQ(worst->live_bytes, 50u);
  EXPECT_EQ(worst->at_s, 3.0);
  EXPECT_EQ(counters.worst_moment({500, 500})->reserved_bytes, 500u) << "now";
}

TEST(KindCounters, TheWorstMomentIsNoMoreThanThePeak) {
  KindCounters counters;
  counters.block_born({100});
  ASSERT_TRUE(counters.worst_moment({180, 180})) << "another thread's block was counted twice";
  EXPECT_EQ(counters.worst_moment({120, 150})->reserved_bytes, 150u);
  EXPECT_EQ(counters.worst_moment({120, 90})->reserved_bytes, 100u) << "what was live was reserved";
}

TEST(KindCounters, ResetLeavesNothing) {
  KindCounters counters;
  counters.block_born({5 * kMiB});
  counters.count_unpooled(Unpooled::pipe);
  add(counters.failed);
  add(counters.classes[3].hits);
  counters.reset();
  const KindFigures figures = counters.figures("opencl", true);
  EXPECT_EQ(figures.allocations + figures.live_blocks + figures.live_bytes + figures.peak_bytes + figures.failed, 0u);
  EXPECT_TRUE(figures.unpooled.empty());
  EXPECT_TRUE(figures.classes.empty());
  EXPECT_EQ(read(counters.classes[3].hits), 0u);
}

TEST(KindCounters, ThreadsAgree) {
  constexpr int kThreads = 4, kBlocks = 20000;
  KindCounters counters;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&counters] {
        for (int block = 0; block < kBlocks; ++block) {
          counters.block_born({100});
          counters.block_died({100});
        }
        counters.block_born({100});
      });
  }
  const KindFigures figures = counters.figures("opencl", true);
  EXPECT_EQ(figures.allocations, static_cast<std::uint64_t>(kThreads) * (kBlocks + 1));
  EXPECT_EQ(figures.live_bytes, 100u * kThreads);
  EXPECT_GE(figures.peak_bytes, 100u * kThreads);
  EXPECT_LE(figures.peak_bytes, 200u * kThreads);
}

TEST(RaisePeak, OnlyRaises) {
  Counter peak{10};
  EXPECT_FALSE(raise_peak(peak, 10));
  EXPECT_TRUE(raise_peak(peak, 11));
  EXPECT_FALSE(raise_peak(peak, 3));
  EXPECT_EQ(read(peak), 11u);
}

TEST(Clock, RunsForwardAndStartsOnce) {
  const std::uint64_t before = nanoseconds_since_start();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  start_clock();  // has been running since the first question
  EXPECT_GE(nanoseconds_since_start(), before + 5'000'000);
  EXPECT_LE(coarse_nanoseconds_since_start(), nanoseconds_since_start());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_GE(coarse_nanoseconds_since_start(), before + 10'000'000);
}

// The kind's sites as a report shows them.
Snapshot sites_of(KindCounters& counters) {
  Snapshot snapshot{};
  counters.add_sites("device:0", snapshot);
  return snapshot;
}

TEST(KindCounters, WhoHeldThePeak) {
  KindCounters counters;
  counters.block_born({30, "a", 1});
  counters.block_born({20, "b", 2});
  counters.block_died({30, "a", 1});
  counters.block_born({40, "c", 3});  // 60: the peak
  counters.block_died({20, "b", 2});
  counters.block_born({10, "a", 1});
  counters.block_died({40, "c", 3});
  counters.block_born({25, "d", 4});
  const Snapshot snapshot = sites_of(counters);
  EXPECT_EQ(counters.figures("device:0", true).peak_bytes, 60u);
  EXPECT_EQ(counters.figures("device:0", true).allocated_bytes, 125u);
  ASSERT_EQ(snapshot.at_peak.size(), 2u);
  EXPECT_STREQ(snapshot.at_peak[0].api, "c");
  EXPECT_EQ(snapshot.at_peak[0].site, 3u);
  EXPECT_EQ(snapshot.at_peak[0].kind, "device:0");
  EXPECT_EQ(snapshot.at_peak[0].peak_bytes, 40u);
  EXPECT_EQ(snapshot.at_peak[0].peak_blocks, 1u);
  EXPECT_EQ(snapshot.at_peak[1].peak_bytes, 20u);
  EXPECT_TRUE(snapshot.in_loops.empty());
}

// Against a model that looks at every site at each peak.
TEST(KindCounters, WhoHeldThePeakInRandomOrders) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    KindCounters counters;
    std::vector<CountedBlock> live;
    std::map<SiteId, std::uint64_t> now, at_peak;
    std::uint64_t sum = 0, peak = 0;
    for (int step = 0; step < 300; ++step) {
      if (live.empty() || random() % 5 < 3) {
        const CountedBlock block{1 + random() % 1000, "x", static_cast<SiteId>(1 + random() % 3 * 200)};
        live.push_back(block);
        counters.block_born(block);
        now[block.site] += block.bytes;
        sum += block.bytes;
        if (sum > peak) peak = sum, at_peak = now;
      } else {
        std::swap(live[random() % live.size()], live.back());
        const CountedBlock block = live.back();
        live.pop_back();
        counters.block_died(block);
        now[block.site] -= block.bytes;
        sum -= block.bytes;
      }
    }
    std::map<SiteId, std::uint64_t> shown;
    for (const UsingSite& site : sites_of(counters).at_peak) shown[site.site] = site.peak_bytes;
    std::erase_if(at_peak, [](const auto& site) { return !site.second; });
    EXPECT_EQ(shown, at_peak);
  }
}

TEST(KindCounters, BlocksThatTheNextCallFrees) {
  KindCounters counters;
  const int first = 0, second = 0;
  for (int i = 0; i < 999; ++i) {
    counters.block_born({100, "a", 1, &first});
    counters.block_died({100, "a", 1, &first});
  }
  EXPECT_TRUE(sites_of(counters).in_loops.empty());
  counters.block_born({100, "a", 1, &first});
  counters.block_born({100, "b", 2, &second});
  counters.block_died({100, "a", 1, &first});
  counters.block_died({100, "b", 2, &second});
  EXPECT_EQ(counters.figures("device:0", true).temporary, 999u);
  const Snapshot snapshot = sites_of(counters);
  ASSERT_EQ(snapshot.in_loops.size(), 1u);
  EXPECT_EQ(snapshot.in_loops[0].allocations, 1000u);
  EXPECT_EQ(snapshot.in_loops[0].allocated_bytes, 100'000u);
  EXPECT_EQ(snapshot.in_loops[0].temporary, 999u);
}

TEST(KindCounters, AForkedChildsSitesBeginAnew) {
  KindCounters counters;
  counters.block_born({100, "a", 1});
  counters.reset();
  EXPECT_TRUE(sites_of(counters).at_peak.empty());
  counters.block_born({7, "a", 1});
  EXPECT_EQ(sites_of(counters).at_peak[0].peak_bytes, 7u);
}

TEST(KindCounters, CountThePartsOfAKindApart) {
  KindCounters counters;
  PartCounters one, other;
  const CountedBlock first{100, "x", 0, nullptr, &one}, second{50, "x", 0, nullptr, &other}, none{7, "x", 0, nullptr};
  counters.lock.lock();
  counters.block_born_locked(first, false, 0, 0);  // at the very start
  counters.lock.unlock();
  for (const CountedBlock& block : {second, second, none}) counters.block_born(block);
  counters.block_died(second);
  counters.block_died(none);
  EXPECT_EQ(read(one.peak_bytes), 100u);
  EXPECT_EQ(read(one.live_bytes), 100u);
  EXPECT_EQ(read(other.allocations), 2u);
  EXPECT_EQ(read(other.live_blocks), 1u);
  EXPECT_EQ(read(other.live_bytes), 50u);
  EXPECT_EQ(read(other.peak_bytes), 100u);
  counters.block_died({0, "x", 0, nullptr, &one});  // its memory lives on in a child
  counters.bytes_died(first);
  EXPECT_EQ(read(one.live_blocks), 0u);
  EXPECT_EQ(read(one.live_bytes), 0u);
  counters.block_died(second);
  counters.block_did_not_die(second);
  EXPECT_EQ(read(other.live_blocks), 1u);
  EXPECT_EQ(read(other.live_bytes), 50u);
}

}  // namespace
}  // namespace cistern
