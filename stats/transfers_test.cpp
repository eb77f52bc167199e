// The transfer table: rows and sites of copies, rates, and sites of copies that could do better.
#include "stats/transfers.hpp"

#include <gtest/gtest.h>

namespace cistern {
namespace {

TransferKey key(CopyDirection direction, SiteId site, bool asynchronous = false, const char* api = "copy") {
  return {direction, true, asynchronous, site, api};
}

Snapshot snapshot_of(Transfers& transfers) {
  Snapshot snapshot{};
  transfers.add_to(snapshot, "opencl");
  return snapshot;
}

TEST(Transfers, RowsAreSumsOfSitesAndNameTheLargest) {
  Transfers transfers;
  transfers.add(key(CopyDirection::host_to_device, 1), 2, 300);
  transfers.add_time(key(CopyDirection::host_to_device, 1), 2, 300, 1000);
  transfers.add(key(CopyDirection::host_to_device, 2, false, "other"), 1, 500);
  transfers.add_time(key(CopyDirection::host_to_device, 2, false, "other"), 1, 500, 3000);
  transfers.add(key(CopyDirection::host_to_device, 2, true), 1, 10'000);
  transfers.add_failed(key(CopyDirection::device_to_host, 3), 4);
  const Snapshot snapshot = snapshot_of(transfers);
  ASSERT_EQ(snapshot.transfers.size(), 3u);
  const TransferFigures &later = snapshot.transfers[0], &waits = snapshot.transfers[1], &failed = snapshot.transfers[2];
  EXPECT_TRUE(later.asynchronous);
  EXPECT_EQ(later.bytes, 10'000u);
  EXPECT_FALSE(later.seconds);
  EXPECT_STREQ(waits.kind, "opencl");
  EXPECT_STREQ(waits.direction, "host to device");
  EXPECT_EQ(waits.count, 3u);
  EXPECT_EQ(waits.bytes, 800u);
  EXPECT_EQ(waits.timed_bytes, 800u);
  EXPECT_DOUBLE_EQ(waits.seconds.value(), 4e-6);
  EXPECT_STREQ(waits.api, "other");
  EXPECT_EQ(waits.site, 2u);
  EXPECT_EQ(waits.site_bytes, 500u);
  EXPECT_EQ(failed.failed, 4u);
  EXPECT_EQ(failed.count, 0u);
  transfers.clear();
  EXPECT_TRUE(snapshot_of(transfers).transfers.empty());
}

// Within half an eighth of a power of two.
void expect_rate(const std::optional<double>& found, double wanted) {
  ASSERT_TRUE(found);
  EXPECT_GT(*found, wanted / 1.05);
  EXPECT_LT(*found, wanted * 1.05);
}

TEST(Transfers, RatesArePercentilesOfTheCopies) {
  Transfers transfers;
  const TransferKey one = key(CopyDirection::device_to_host, 1);
  // 1 to 100 GB/s, one copy each.
  for (std::uint64_t rate = 100; rate >= 1; --rate) {
    transfers.add(one, 1, rate * 1000);
    transfers.add_time(one, 1, rate * 1000, 1000);
  }
  // The time of several copies together says nothing about each.
  transfers.add(one, 1000, 1);
  transfers.add_time(one, 1000, 1, 1'000'000);
  const Snapshot snapshot = snapshot_of(transfers);
  ASSERT_EQ(snapshot.transfers.size(), 1u);
  expect_rate(snapshot.transfers[0].rate_p50, 50e9);
  expect_rate(snapshot.transfers[0].rate_p95, 95e9);
}

TEST(Transfers, RatesOfAnyMagnitude) {
  for (const std::uint64_t bytes :
       {std::uint64_t{1}, std::uint64_t{999}, std::uint64_t{1} << 20, std::uint64_t{700} << 30})
    for (const std::uint64_t nanoseconds : {std::uint64_t{1'000}, std::uint64_t{1'000'000'000}}) {
      Transfers transfers;
      for (int copies = 0; copies < 20; ++copies) {
        EXPECT_TRUE(!copies || !snapshot_of(transfers).transfers.at(0).rate_p50) << copies;
        transfers.add(key(CopyDirection::unknown, 0), 1, bytes);
        transfers.add_time(key(CopyDirection::unknown, 0), 1, bytes, nanoseconds);
      }
      const double rate = static_cast<double>(bytes) / (static_cast<double>(nanoseconds) * 1e-9);
      const auto found = snapshot_of(transfers).transfers.at(0).rate_p50;
      if (rate < 1e12) expect_rate(found, rate);
      EXPECT_TRUE(found);
    }
}

TEST(Transfers, SitesThatCopyLittleAtATime) {
  Transfers transfers;
  const auto add = [&](SiteId site, std::uint64_t count, std::uint64_t bytes, bool asynchronous = false) {
    const TransferKey one = key(CopyDirection::host_to_device, site, asynchronous);
    transfers.add(one, count, count * bytes);
    if (!asynchronous) transfers.add_time(one, count, count * bytes, count * 2000);
  };
  add(1, 999, 100);
  add(2, 1000, (16 << 10) + 1);
  add(3, 1000, 16 << 10);
  add(4, 5000, 4096, true);
  const Snapshot snapshot = snapshot_of(transfers);
  Vector<const CopySite*> tiny;
  for (const CopySite& site : snapshot.copy_sites)
    if (site.tiny()) tiny.push_back(&site);
  ASSERT_EQ(tiny.size(), 2u);
  const CopySite &four = tiny[0]->site == 4 ? *tiny[0] : *tiny[1], &three = tiny[0]->site == 4 ? *tiny[1] : *tiny[0];
  EXPECT_EQ(four.bytes, 5000u * 4096);
  EXPECT_FALSE(four.seconds);
  EXPECT_EQ(three.site, 3u);
  EXPECT_DOUBLE_EQ(three.seconds.value(), 2e-3);
}

TEST(Transfers, SitesLoseTimeBesideTheBestCopyOfTheirDirection) {
  Transfers transfers;
  constexpr std::uint64_t kMillisecond = 1'000'000, kBytes = 4'000'000;
  const auto add = [&](CopyDirection direction, SiteId site, std::uint64_t nanoseconds) {
    transfers.add(key(direction, site), 1, kBytes);
    transfers.add_time(key(direction, site), 1, kBytes, nanoseconds);
  };
  add(CopyDirection::host_to_device, 1, kMillisecond);
  add(CopyDirection::host_to_device, 2, 301 * kMillisecond);
  add(CopyDirection::device_to_host, 3, 90 * kMillisecond);
  for (const CopySite& site : snapshot_of(transfers).copy_sites) {
    EXPECT_NEAR(site.lost_seconds, site.site == 2 ? 0.3 : 0, 1e-9) << site.site;
    EXPECT_EQ(site.loses_time(), site.site == 2);
  }
}

TEST(Transfers, ACopyThatTheNextCallWaitsForIsInLockStep) {
  Transfers transfers;
  const TransferKey one = key(CopyDirection::device_to_host, 1, true);
  const int stream = 0, other = 0, mark = 0, other_mark = 0;
  const auto after_a_copy = [&](auto... next) {
    transfers.last_was(one, &stream);
    (next(), ...);
    return snapshot_of(transfers).copy_sites.at(0).waited_for;
  };
  transfers.add(one, 1, 8);
  const auto wait = [&](const void* for_what) { return [=] { Transfers::waits(for_what); }; };
  EXPECT_EQ(after_a_copy(wait(&stream)), 1u);
  EXPECT_EQ(after_a_copy(wait(nullptr)), 2u);
  EXPECT_EQ(after_a_copy([&] { Transfers::marks(&mark, &stream); }, wait(&mark)), 3u);
  // Once; and none of these.
  EXPECT_EQ(after_a_copy(wait(&stream), wait(&stream)), 4u);
  EXPECT_EQ(after_a_copy(wait(&other), wait(&stream)), 4u);
  EXPECT_EQ(after_a_copy(Transfers::last_was_no_copy, wait(&stream)), 4u);
  EXPECT_EQ(after_a_copy([&] { Transfers::marks(&mark, &other); }, wait(&mark)), 4u);
  EXPECT_EQ(after_a_copy([&] { Transfers::marks(&mark, &stream); }, wait(&other_mark)), 4u);
}

TEST(Transfers, EfficiencyIsThePartOfTheBestLargeCopy) {
  Transfers transfers;
  const TransferKey pageable = key(CopyDirection::host_to_device, 1);
  TransferKey pinned = pageable;
  pinned.pageable = false;
  const auto add = [&](const TransferKey& one, std::uint64_t bytes, std::uint64_t nanoseconds) {
    transfers.add(one, 1, bytes);
    transfers.add_time(one, 1, bytes, nanoseconds);
  };
  add(pinned, 1 << 20, 50'000);
  add(pinned, 1000, 1);  // no large one
  add(pageable, 4 << 20, 800'000);
  const Snapshot snapshot = snapshot_of(transfers);
  ASSERT_EQ(snapshot.transfers.size(), 2u);
  EXPECT_TRUE(snapshot.transfers[0].pageable);
  EXPECT_NEAR(snapshot.transfers[0].efficiency.value(), 0.25, 1e-9);
}

}  // namespace
}  // namespace cistern
