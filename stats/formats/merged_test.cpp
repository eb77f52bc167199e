// Merging: in any order and in any grouping the result is the same, and it survives its JSON.
#include "stats/formats/merged.hpp"

#include <gtest/gtest.h>

#include <random>

#include "stats/formats/read.hpp"

namespace cistern::formats {
namespace {

// The kinds, sites and values of a process are random, from so few that processes have many in common.
Merged random_process(std::mt19937_64& random, unsigned rank) {
  auto run = Run{};
  const auto pick = [&](Count bound) { return random() % bound; };
  for (Count line = 1; line <= 6; ++line) {
    Frame frame;
    frame.function = "f" + std::to_string(line), frame.file = "a.cpp", frame.line = line;
    run.frames.push_back(frame);
    run.stacks.push_back({static_cast<FrameId>(line - 1), static_cast<FrameId>(pick(line))});
  }
  Report report;
  report.cistern.pid = 100 + rank;
  if (pick(4)) report.cistern.rank = rank;
  for (const char* name : {"host", "device:0", "pinned"}) {
    if (!pick(3)) continue;
    Kind kind;
    kind.live_bytes = pick(5), kind.peak_bytes = kind.live_bytes + pick(3), kind.allocations = pick(9);
    kind.failed = pick(2);
    report.kinds.emplace_back(name, kind);
  }
  for (Count rows = pick(6); rows; --rows) {
    LiveRow row;
    row.kind = pick(2) ? "host" : "device:0", row.leak_class = pick(2) ? "lost" : "reachable", row.object = "block";
    row.blocks = 1 + pick(3), row.bytes = pick(100), row.suppressed = !pick(5);
    row.frames = static_cast<StackId>(pick(run.stacks.size()));
    report.leaks.push_back(row);
  }
  run.reports.push_back(report);
  return merged(run);
}

Merged in_order(const std::vector<Merged>& all) {
  Merged sum;
  for (const Merged& one : all) merge(sum, one);
  return sum;
}

// Merges two random neighbours until one is left.
Merged in_groups(std::vector<Merged> all, std::mt19937_64& random) {
  while (all.size() > 1) {
    const std::size_t at = random() % (all.size() - 1);
    merge(all[at], all[at + 1]);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  return all[0];
}

TEST(Merged, OrderAndGroupingChangeNothing) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<Merged> all;
    for (unsigned rank = 0; rank < 2 + random() % 30; ++rank) all.push_back(random_process(random, rank));
    const Merged expected = in_order(all);
    ASSERT_EQ(expected.processes, all.size());
    ASSERT_EQ(in_groups(all, random), expected);
    std::shuffle(all.begin(), all.end(), random);
    ASSERT_EQ(in_order(all), expected);
    ASSERT_EQ(in_groups(all, random), expected);
    ASSERT_EQ(read_merged(merged_json(expected)), expected);
    Merged nothing;
    merge(nothing, expected);
    ASSERT_EQ(nothing, expected);
  }
}

TEST(Merged, SumsAreThoseOfTheProcesses) {
  std::mt19937_64 random(1);
  std::vector<Merged> all;
  for (unsigned rank = 0; rank < 100; ++rank) all.push_back(random_process(random, rank));
  const Merged sum = in_order(all);
  for (const auto& [name, kind] : sum.kinds) {
    Count live = 0, processes = 0;
    for (const Merged& one : all)
      if (const auto found = one.kinds.find(name); found != one.kinds.end())
        live += found->second.live_bytes.sum, ++processes;
    EXPECT_EQ(kind.live_bytes.sum, live);
    EXPECT_EQ(kind.live_bytes.processes, processes);
    EXPECT_EQ(kind.largest.size(), MergedKind::kLargestMax);
    EXPECT_EQ(kind.largest[0], kind.peak_bytes.most);
  }
}

TEST(Merged, DamagedOnesAreRefused) {
  std::mt19937_64 random(2);
  const std::string whole = merged_json(in_order({random_process(random, 0), random_process(random, 1)}));
  for (std::size_t bytes = 0; bytes + 2 < whole.size(); bytes += 7)
    EXPECT_THROW(read_merged(whole.substr(0, bytes)), BadReport) << bytes;
  EXPECT_THROW(read_merged(R"({"cistern_merge": {"schema": 2, "processes": 1}, "kinds": {}, "sites": []})"), BadReport);
  EXPECT_THROW(read_merged(R"({"cistern_merge": {"schema": 1, "processes": -1}, "kinds": {}, "sites": []})"),
               BadReport);
  EXPECT_THROW(read_merged(R"({"cistern_merge": {"schema": 1, "processes": 1}, "kinds": [], "sites": []})"), BadReport);
  EXPECT_THROW(read_merged(R"({"cistern_merge": {"schema": 1, "processes": 1}, "kinds": {}, "sites": [1]})"),
               BadReport);
}

}  // namespace
}  // namespace cistern::formats
