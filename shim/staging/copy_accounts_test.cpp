// Checks that accounts of copies are kept apart by device, direction and kind of host memory.
#include "shim/staging/copy_accounts.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace cistern {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kSecond = 1'000'000'000;
constexpr SourceKind kKinds[] = {SourceKind::anonymous, SourceKind::file, SourceKind::network_file,
                                 SourceKind::shared_memory};

// As many trials as it asks for, of a driver that takes `native_ns` for a copy.
void try_out(staging::Calibration& calibration, std::uint64_t native_ns, std::uint64_t staged_ns) {
  for (int copy = 0; copy < 20; ++copy) {
    const auto choice = calibration.choose(kMiB, kSecond * 100);
    if (!choice.trial) return;
    const std::uint64_t took = choice.way == staging::Way::staged ? staged_ns : native_ns;
    calibration.tried(choice.way, kMiB, {took, took, kMiB});
  }
}

std::optional<staging::Way> won(CopyAccount& account) {
  const auto figures = account.calibration.figures(staging::range_of(kMiB));
  return figures ? figures->won : std::nullopt;
}

TEST(CopyAccounts, TrialsOfOneKindOfMemoryDecideForNoOther) {
  CopyAccounts accounts;
  try_out(accounts.of(0, true, SourceKind::anonymous).calibration, 100'000, 300'000);
  EXPECT_EQ(won(accounts.of(0, true, SourceKind::anonymous)), staging::Way::native);
  for (const SourceKind kind : kKinds)
    EXPECT_EQ(won(accounts.of(0, true, kind)).has_value(), kind == SourceKind::anonymous) << name_of(kind);
  EXPECT_FALSE(won(accounts.of(0, false, SourceKind::anonymous)));
  EXPECT_FALSE(won(accounts.of(1, true, SourceKind::anonymous)));

  try_out(accounts.of(0, true, SourceKind::file).calibration, 900'000, 300'000);
  EXPECT_EQ(won(accounts.of(0, true, SourceKind::file)), staging::Way::staged);
  EXPECT_EQ(won(accounts.of(0, true, SourceKind::anonymous)), staging::Way::native);
  EXPECT_FALSE(won(accounts.of(0, true, SourceKind::network_file)));
}

TEST(CopyAccounts, ReportsHaveARowForEachKindOfMemoryThatWasCopied) {
  CopyAccounts accounts;
  for (const SourceKind kind : kKinds) {
    accounts.of(0, true, kind).count_staged(kMiB);
    if (is_file(kind)) accounts.of(0, false, kind).count(Unstaged::untouchable, kMiB);
  }
  Snapshot snapshot{};
  accounts.add_to(snapshot, "cuda");
  std::multiset<std::string> rows;
  for (const StagingFigures& figures : snapshot.staging)
    rows.insert(std::string(figures.direction) + ", " + figures.source);
  EXPECT_EQ(rows, (std::multiset<std::string>{"host to device, memory", "host to device, file",
                                              "host to device, network-file", "host to device, shared-memory",
                                              "device to host, file", "device to host, network-file"}));
}

TEST(CopyAccounts, AChildForgetsTheCountsOfAllKinds) {
  CopyAccounts accounts;
  for (const SourceKind kind : kKinds) accounts.of(0, true, kind).count_staged(kMiB);
  accounts.before_fork();
  accounts.after_fork();
  accounts.forget_in_child();
  Snapshot snapshot{};
  accounts.add_to(snapshot, "cuda");
  EXPECT_TRUE(snapshot.staging.empty());
}

}  // namespace
}  // namespace cistern
