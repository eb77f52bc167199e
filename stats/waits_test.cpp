// Waits by site: counts, times, order, and threads.
#include "stats/waits.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cistern {
namespace {

Vector<WaitSite> shown(Waits& waits) {
  Snapshot snapshot{};
  waits.add_to(snapshot, "cuda");
  return std::move(snapshot.waits);
}

TEST(Waits, AreCountedBySiteAndCall) {
  Waits waits;
  const char *first = "cuStreamSynchronize", *second = "cuCtxSynchronize";
  for (int i = 0; i < 5; ++i) waits.add(1, first, 1'000'000);
  for (int i = 0; i < 7; ++i) waits.add(1, second, 2'000'000);
  waits.add(2, first, 3);
  waits.add(3, first, 3);
  waits.add(3, first, 3);
  const Vector<WaitSite> rows = shown(waits);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].count, 7u);
  EXPECT_STREQ(rows[0].api, second);
  EXPECT_STREQ(rows[0].kind, "cuda");
  EXPECT_DOUBLE_EQ(rows[0].seconds, 0.014);
  EXPECT_EQ(rows[1].count, 5u);
  EXPECT_EQ(rows[2].site, 3u);
  waits.clear();
  EXPECT_TRUE(shown(waits).empty());
}

TEST(Waits, ThreadsAgree) {
  Waits waits;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 10000; ++j) waits.add(9, nullptr, 10);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shown(waits)[0].count, 40000u);
}

}  // namespace
}  // namespace cistern
