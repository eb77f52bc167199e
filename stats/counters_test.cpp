// Counters: figures of one kind, peaks, the clock and the report's size classes.
#include "stats/counters.hpp"

#include <gtest/gtest.h>

#include <thread>

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
  counters.block_born(64 * kMiB);
  counters.block_born(64 * kMiB);
  counters.block_born(1000);
  counters.block_died(64 * kMiB);
  counters.block_born(0);  // a sub-buffer
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
  counters.block_born(2 * kMiB, /*pool_hit=*/true);
  counters.block_died(0);
  KindFigures figures = counters.figures("opencl", true);
  EXPECT_EQ(figures.live_blocks, 0u);
  EXPECT_EQ(figures.live_bytes, 2 * kMiB);
  counters.bytes_died(2 * kMiB);
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

TEST(KindCounters, ResetLeavesNothing) {
  KindCounters counters;
  counters.block_born(5 * kMiB);
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
          counters.block_born(100);
          counters.block_died(100);
        }
        counters.block_born(100);
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

}  // namespace
}  // namespace cistern
