// The gate's outcome for snapshots: memory that counts certainly, and memory that cannot be decided.
#include "shim/core/gate.hpp"

#include <gtest/gtest.h>

namespace cistern {
namespace {

constexpr std::uint64_t kKiB = 1024;

Options gate(FailOn::What what, std::uint64_t bytes_min = 0) {
  Options options;
  options.fail_on.bytes_min[what] = bytes_min;
  options.leak_check = 1;
  options.host = true;
  return options;
}

LeakFigures leak(const char* kind, Standing standing, std::uint64_t bytes) {
  LeakFigures row{};
  row.kind = kind;
  row.leak_class = class_of(standing);
  row.blocks = 1;
  row.bytes = bytes;
  return row;
}

Snapshot judged(std::initializer_list<LeakFigures> leaks) {
  Snapshot snapshot{};
  snapshot.judging.emplace();
  snapshot.leaks = leaks;
  return snapshot;
}

Outcome outcome(const Snapshot& snapshot, const Options& options) { return gate_of(snapshot, options).outcome; }

const LeakFigures kLost = leak("opencl", Standing::lost, 8 * kKiB);
const LeakFigures kPossible = leak("opencl", Standing::possibly_lost, 8 * kKiB);
const LeakFigures kReachable = leak("opencl", Standing::reachable, 8 * kKiB);
const LeakFigures kUnclassified = leak("opencl", Standing::unclassified, 8 * kKiB);
const LeakFigures kNeverFreed = leak("opencl", Standing::none, 8 * kKiB);

TEST(Gate, WhatIsSureDecides) {
  EXPECT_EQ(outcome(judged({}), gate(FailOn::any)), Outcome::passed);
  for (const LeakFigures& row : {kLost, kPossible, kReachable, kUnclassified, kNeverFreed})
    EXPECT_EQ(outcome(judged({row}), gate(FailOn::any)), Outcome::failed);
  EXPECT_EQ(outcome(judged({kLost}), gate(FailOn::lost)), Outcome::failed);
  EXPECT_EQ(outcome(judged({kLost}), gate(FailOn::lost, 8 * kKiB)), Outcome::failed);
  EXPECT_EQ(outcome(judged({kLost}), gate(FailOn::lost, 8 * kKiB + 1)), Outcome::passed);
  EXPECT_EQ(outcome(judged({kReachable, kPossible}), gate(FailOn::lost)), Outcome::passed);
  EXPECT_EQ(outcome(judged({kPossible}), gate(FailOn::possible)), Outcome::failed);
  EXPECT_EQ(outcome(judged({kReachable}), gate(FailOn::possible)), Outcome::passed);
}

TEST(Gate, WhatIsSuppressedNeverCounts) {
  for (LeakFigures row : {kLost, kUnclassified, kNeverFreed}) {
    row.suppressed = true;
    EXPECT_EQ(outcome(judged({row}), gate(FailOn::any)), Outcome::passed);
    EXPECT_EQ(outcome(judged({row}), gate(FailOn::lost)), Outcome::passed);
  }
}

TEST(Gate, WithoutAJudgementWhatIsLiveIsUndecided) {
  Snapshot snapshot = judged({kUnclassified});
  snapshot.judging->why_not = "the time limit (CISTERN_LEAK_CHECK) is too short";
  const GateFigures figures = gate_of(snapshot, gate(FailOn::lost));
  EXPECT_EQ(figures.outcome, Outcome::undecided);
  EXPECT_EQ(figures.reason, "live memory was not judged: the time limit (CISTERN_LEAK_CHECK) is too short");
  EXPECT_EQ(outcome(snapshot, gate(FailOn::possible)), Outcome::undecided);
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost, 9 * kKiB)), Outcome::passed);
  EXPECT_EQ(outcome(snapshot, gate(FailOn::any)), Outcome::failed);
  snapshot.leaks.clear();
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost)), Outcome::passed);
}

TEST(Gate, WhereNobodyWasAskedToJudge) {
  Snapshot snapshot = judged({kNeverFreed});
  snapshot.judging.reset();
  Options options = gate(FailOn::lost);
  options.leak_check = 0;
  EXPECT_EQ(gate_of(snapshot, options).reason, "CISTERN_LEAK_CHECK=0: live memory was not judged");
}

TEST(Gate, UnseenThreadsMayHoldWhatLooksLost) {
  Snapshot snapshot = judged({kPossible});
  snapshot.judging->unseen_threads = 2;
  const GateFigures figures = gate_of(snapshot, gate(FailOn::lost));
  EXPECT_EQ(figures.outcome, Outcome::undecided);
  EXPECT_EQ(figures.reason, "the registers of 2 other threads were not seen");
  EXPECT_EQ(outcome(snapshot, gate(FailOn::possible)), Outcome::failed);
  snapshot.leaks.push_back(kLost);  // whatever they hold
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost)), Outcome::failed);
  snapshot.leaks = {kReachable};
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost)), Outcome::passed);
}

TEST(Gate, SureAndUnsureBytesAddUpToTheSize) {
  Snapshot snapshot = judged({kLost, kPossible});
  snapshot.judging->unseen_threads = 1;
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost, 16 * kKiB)), Outcome::undecided);
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost, 16 * kKiB + 1)), Outcome::passed);
}

TEST(Gate, HostMemoryCountsWithAllSites) {
  Snapshot snapshot = judged({});
  snapshot.host_sites = {leak("host", Standing::lost, kKiB)};
  snapshot.host_sites_mode = "512KiB";
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost)), Outcome::passed);
  snapshot.host_sites_mode = "all";
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost)), Outcome::failed);
  EXPECT_EQ(outcome(snapshot, gate(FailOn::any)), Outcome::passed);
  snapshot.host_sites[0].inherited = true;
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost)), Outcome::passed);
  // Memory that is made after the judgement: by the C library while the process ends, or by threads that go on.
  snapshot.host_sites = {leak("host", Standing::unclassified, kKiB)};
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost)), Outcome::passed);
  snapshot.judging->unreadable_bytes = kKiB;
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost)), Outcome::undecided);
}

TEST(Gate, HostMemoryOfAnotherAllocatorIsUndecided) {
  Snapshot snapshot = judged({});
  KindFigures host{};
  host.name = "host";
  host.is_host = true;
  host.live_blocks = 1, host.live_bytes = kKiB;
  snapshot.kinds = {host};
  Options options = gate(FailOn::lost);
  EXPECT_EQ(outcome(snapshot, options), Outcome::passed);
  options.sites = "all";
  EXPECT_EQ(gate_of(snapshot, options).reason, "another allocator serves host memory");
}

TEST(Gate, WhatIsMadeAfterACompleteJudgementDoesNotCount) {
  Snapshot snapshot = judged({kUnclassified});
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost)), Outcome::passed);
  EXPECT_EQ(outcome(snapshot, gate(FailOn::possible)), Outcome::passed);
  EXPECT_EQ(outcome(snapshot, gate(FailOn::any)), Outcome::failed);
  snapshot.judging->unreadable_bytes = kKiB;
  EXPECT_EQ(outcome(snapshot, gate(FailOn::lost)), Outcome::undecided);
}

TEST(Gate, HostMemoryThatNobodySawIsUndecided) {
  Options options = gate(FailOn::lost, 1024 * kKiB);
  options.sites = "all";
  Snapshot snapshot = judged({});
  EXPECT_EQ(gate_of(snapshot, options).reason, "another allocator serves host memory");
  snapshot.host_sites_mode = "unseen";
  EXPECT_EQ(gate_of(snapshot, options).reason, "Cistern is not preloaded and does not see host memory");
  snapshot.host_sites_mode = "all";
  EXPECT_EQ(outcome(snapshot, options), Outcome::passed);
}

TEST(Gate, GrowthWithoutCallSitesIsUndecided) {
  KindFigures buffers{};
  buffers.name = "opencl";
  buffers.allocations = 1, buffers.peak_bytes = kKiB;
  Snapshot snapshot = judged({});
  snapshot.kinds = {buffers};
  Options options = gate(FailOn::growing, kKiB);
  EXPECT_EQ(outcome(snapshot, options), Outcome::passed);
  options.sites = "off";
  EXPECT_EQ(gate_of(snapshot, options).reason, "CISTERN_SITES=off: no call site is known");
  options.fail_on.bytes_min[FailOn::growing] = kKiB + 1;
  EXPECT_EQ(outcome(snapshot, options), Outcome::passed);
  KindFigures host{};
  host.name = "host";
  host.is_host = true;
  host.allocations = 1, host.peak_bytes = 2 * kKiB;
  snapshot.kinds = {host};
  EXPECT_EQ(outcome(snapshot, options), Outcome::passed);
  options.sites = "all";
  EXPECT_EQ(gate_of(snapshot, options).reason, "another allocator serves host memory");
}

TEST(Gate, GrowthIsOneSitesFromTheSizeOn) {
  Snapshot snapshot = judged({});
  GrowingSite site{};
  site.kind = "opencl";
  site.trend = {TrendKind::growing, 1e6, 0, 10 * kKiB};
  snapshot.growing = {site};
  EXPECT_EQ(outcome(snapshot, gate(FailOn::growing)), Outcome::failed);
  EXPECT_EQ(outcome(snapshot, gate(FailOn::growing, 11 * kKiB)), Outcome::passed);
  Options options = gate(FailOn::growing, 11 * kKiB);
  options.fail_on.bytes_min[FailOn::any] = 0;
  EXPECT_EQ(outcome(snapshot, options), Outcome::passed);
  snapshot.leaks = {kReachable};
  EXPECT_EQ(outcome(snapshot, options), Outcome::failed);
  snapshot.leaks = {};
  snapshot.growing[0].suppressed = true;
  EXPECT_EQ(outcome(snapshot, gate(FailOn::growing)), Outcome::passed);
}

TEST(Gate, WhatIsNotUnderstoodFailsWhateverIsThere) {
  Options options = gate(FailOn::any);
  options.gate_fault = "CISTERN_FAIL_CODE: '300' is not a whole number from 1 to 255";
  EXPECT_EQ(gate_of(judged({}), options).outcome, Outcome::misconfigured);
  EXPECT_EQ(gate_of(judged({kLost}), options).reason, options.gate_fault);
  Snapshot snapshot = judged({});
  snapshot.suppressions_fault = "CISTERN_SUPPRESSIONS: f: No such file or directory";
  EXPECT_EQ(gate_of(snapshot, gate(FailOn::lost)).reason, snapshot.suppressions_fault);
}

}  // namespace
}  // namespace cistern
