// Reports of recordings: the sums of its events, and what was live at moments.
#include "stats/formats/recorded_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "stats/formats/made_recording.hpp"
#include "stats/formats/recorded_memory.hpp"
#include "stats/formats/samples.hpp"
#include "stats/formats/summary.hpp"

namespace cistern::formats {
namespace {

TEST(RecordedRun, HasTheSumsOfTheEvents) {
  const MadeRecording maker = made();
  const Recording recording(maker.bytes);
  const auto run = run_of(recording);
  ASSERT_EQ(run.reports.size(), 1u);
  const Report& report = run.reports[0];
  EXPECT_EQ(report.cistern.pid, 77u);
  EXPECT_EQ(report.cistern.command, "./app --fast");
  EXPECT_EQ(report.cistern.wall_s, 5);
  EXPECT_EQ(report.cistern.moment, "exit");
  EXPECT_TRUE(report.cistern.gpu_memory_used);
  ASSERT_EQ(report.kinds.size(), 1u);
  const auto& [name, kind] = report.kinds[0];
  EXPECT_EQ(name, "device:0");
  EXPECT_EQ(kind.allocations, 2u);
  EXPECT_EQ(kind.frees, 3u);
  EXPECT_EQ(kind.allocated_bytes, 400u);
  EXPECT_EQ(kind.peak_bytes, 400u);
  EXPECT_EQ(kind.peak_at_s, 2);
  EXPECT_EQ(kind.live_bytes, 0u);
  ASSERT_TRUE(kind.live_over_time);
  EXPECT_EQ(kind.live_over_time->last[0], 0u);
  EXPECT_EQ(kind.live_over_time->last[250], 400u);
  EXPECT_EQ(kind.live_over_time->last.back(), 0u);
  ASSERT_EQ(report.at_peak.size(), 2u);
  EXPECT_EQ(report.at_peak[0].api, "malloc");
  EXPECT_EQ(report.at_peak[0].peak_bytes, 300u);
  EXPECT_EQ(run.frames[run.stacks[report.at_peak[1].frames][0]].function, "load");
  EXPECT_TRUE(report.leaks.empty());
  EXPECT_TRUE(report.recorded->missing.empty());
}

TEST(RecordedRun, WhatIsLiveAtTheEnd) {
  MadeRecording maker =
      made({{allocation(4, 0x3000, 50, 4), allocation(5, 0x4000, 7, 4), allocation(5, 0x5000, 9, 99)}});
  const auto leaks = run_of(Recording(maker.bytes)).reports[0].leaks;
  ASSERT_EQ(leaks.size(), 2u);
  EXPECT_EQ(leaks[0].kind, "device:0");
  EXPECT_EQ(leaks[0].leak_class, "never freed");
  EXPECT_EQ(leaks[0].api, "cuMemAlloc");
  EXPECT_EQ(leaks[0].blocks, 2u);
  EXPECT_EQ(leaks[0].bytes, 57u);
  EXPECT_EQ(leaks[0].first_s, 4);
  EXPECT_EQ(leaks[0].last_s, 5);
  EXPECT_EQ(leaks[1].frames, 0u);
  maker.set<std::uint64_t>(offsetof(Header, ended_ns), 0);
  const Report killed = run_of(Recording(maker.bytes)).reports[0];
  EXPECT_EQ(killed.leaks[0].leak_class, "live");
  EXPECT_EQ(killed.cistern.wall_s, 5);
}

TEST(RecordedRun, WhatIsMissingIsSaid) {
  MadeRecording maker = made();
  maker.set<std::uint64_t>(offsetof(Header, thinned_events), 12'345);
  maker.set<std::uint64_t>(offsetof(Header, thinned_until), kSecond);
  maker.set<std::uint64_t>(offsetof(Header, lost_events), 1);
  maker.set<std::uint64_t>(offsetof(Header, lost_since_ns), 2 * kSecond);
  maker.set<std::uint64_t>(offsetof(Header, stopped_ns), 4 * kSecond);
  const std::string text = summary(run_of(Recording(maker.bytes)), {});
  for (const char* line : {"recorded: 5 events, ", "THINNED  12,345 events before 1.00 s are left out",
                           "MISSING  1 event could not be written, the first at 2.00 s.\n",
                           "STOPPED  Nothing is recorded from 4.00 s on.\n",
                           "LARGEST AT THE PEAK OF device:0  400 B at 2.00 s\n 1  300 B in 1 block  malloc\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(RecordedRun, CopiesAndFailures) {
  RecordedEvent copy{.type = RecordedType::copy, .direction = 1, .pageable = true, .kind = 8, .site = 4, .count = 3};
  copy.time = 4 * kSecond, copy.bytes = 30;
  RecordedEvent other = copy;
  other.site = 5, other.count = 1, other.bytes = 12;
  const RecordedEvent failed{
      .type = RecordedType::failed, .kind = 3, .site = 5, .time = 4 * kSecond, .bytes = 1'000'000};
  const MadeRecording maker = made({{copy, other, failed}});
  const auto run = run_of(Recording(maker.bytes));
  const Report& report = run.reports[0];
  ASSERT_EQ(report.transfers.size(), 1u);
  EXPECT_EQ(report.transfers[0].direction, "device to host");
  EXPECT_EQ(report.transfers[0].pageable, true);
  EXPECT_EQ(report.transfers[0].count, 4u);
  EXPECT_EQ(report.transfers[0].bytes, 42u);
  ASSERT_EQ(report.copy_sites.size(), 2u);
  EXPECT_EQ(report.copy_sites[0].api, "cuMemAlloc");
  ASSERT_EQ(report.recorded->failed.size(), 1u);
  EXPECT_EQ(report.recorded->failed[0].at_s, 4);
  EXPECT_EQ(report.recorded->failed[0].bytes, 1'000'000u);
  ASSERT_EQ(report.kinds.size(), 1u);
  EXPECT_EQ(report.kinds[0].second.failed, 1u);
}

TEST(RecordedRun, WhereNoHostMemoryIsCopiedItHasNoType) {
  std::vector<RecordedEvent> copies;
  for (const std::uint8_t direction : {0, 1, 2, 3, 4, 5, 15})
    copies.push_back({.type = RecordedType::copy, .direction = direction, .kind = 8, .count = 1, .bytes = 1});
  const MadeRecording with = made({copies});
  std::map<std::string, bool> has_type;
  const auto run = run_of(Recording(with.bytes));
  for (const Transfer& row : run.reports[0].transfers) has_type[row.direction] = row.pageable.has_value();
  EXPECT_EQ(has_type, (std::map<std::string, bool>{{"host to device", true},
                                                   {"device to host", true},
                                                   {"device to device", false},
                                                   {"host to host", true},
                                                   {"fill", false},
                                                   {"unknown", false}}));
}

// The moments of a long recording are what a simple model says.
TEST(RecordedRun, MomentsAreThoseOfAModel) {
  std::mt19937 random(7);
  std::vector<RecordedEvent> events;
  std::vector<std::vector<RecordedEvent>> chunks;
  std::map<std::uint64_t, RecordedEvent> blocks;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    RecordedEvent event = allocation(5, 16 * (random() % 2000), random() % 1000 + 1, random() % 2 + 4);
    event.time += i * 1'000'000;
    if (random() % 3 == 0)
      event = {.type = RecordedType::free, .kind = 3, .time = event.time, .address = event.address};
    events.push_back(event);
  }
  for (std::size_t at = 0; at < events.size(); at += 2000)
    chunks.push_back({events.begin() + static_cast<long>(at), events.begin() + static_cast<long>(at) + 2000});
  const MadeRecording maker = made(chunks);
  const Recording recording(maker.bytes);
  const auto run = run_of(recording);
  const Recorded& recorded = *run.reports[0].recorded;
  ASSERT_EQ(recorded.moments.size(), 101u);  // and one peak
  EXPECT_EQ(std::ranges::count(recorded.moments, "device:0", &Moment::peak_of), 1);
  auto next = events.begin();
  Seconds before_s = 0;
  for (const Moment& moment : recorded.moments) {
    EXPECT_LE(before_s, moment.at_s);
    before_s = moment.at_s;
    for (; next != events.end() && recording.seconds_at(next->time) <= moment.at_s; ++next)
      next->type == RecordedType::free ? void(blocks.erase(next->address))
                                       : void(blocks.insert_or_assign(next->address, *next));
    std::map<std::string, Amount> model, shown;
    const auto add = [](Amount& sum, Count count, Count bytes) { sum.blocks += count, sum.bytes += bytes; };
    for (const auto& [address, event] : blocks) add(model[event.site == 4 ? "cuMemAlloc" : "malloc"], 1, event.bytes);
    if (moment.at_s < 5) continue;  // the events of `made`
    for (const MomentUse& use : moment.uses) add(shown[recorded.sites[use.site].api], use.blocks, use.bytes);
    ASSERT_EQ(shown.size(), model.size()) << moment.at_s;
    for (const auto& [api, amount] : model) {
      EXPECT_EQ(shown[api].blocks, amount.blocks);
      EXPECT_EQ(shown[api].bytes, amount.bytes);
    }
    if (!moment.peak_of.empty()) {
      EXPECT_EQ(model["malloc"].bytes + model["cuMemAlloc"].bytes, run.reports[0].kinds[0].second.peak_bytes);
    }
  }
  EXPECT_EQ(next, events.end());
}

// The table of blocks against one of the library's.
TEST(RecordedMemory, KnowsItsBlocks) {
  std::mt19937 random(3);
  RecordedMemory memory;
  std::map<std::pair<Count, Count>, Count> blocks;
  for (int i = 0; i < 200'000; ++i) {
    RecordedEvent event = allocation(1, random() % 5000 << random() % 3 * 20, random() % 100, 1);
    event.kind = static_cast<std::uint16_t>(random() % 2);
    const auto key = std::pair(Count{event.kind}, event.address);
    if (random() % 2) event.type = RecordedType::free;
    if (event.type == RecordedType::free)
      blocks.erase(key);
    else
      blocks[key] = event.bytes;
    memory.apply(event);
    if (i % 10'000) continue;
    Count bytes = 0, shown = 0, seen = 0;
    for (const auto& [at, size] : blocks) bytes += size;
    for (const auto& [number, kind] : memory.kinds()) shown += kind.bytes;
    memory.for_each_block([&](const RecordedMemory::Block& block) {
      const Count kind = memory.uses()[block.use].kind;
      EXPECT_EQ(blocks.at({kind, block.address}), block.bytes);
      EXPECT_EQ(memory.block_at(kind, block.address), &block);
      ++seen;
    });
    EXPECT_FALSE(memory.block_at(7, 0));
    EXPECT_EQ(shown, bytes);
    EXPECT_EQ(seen, blocks.size());
  }
}

}  // namespace
}  // namespace cistern::formats
