// Fences that the test opens: what is asked, in which order, and what ends.
#include "pool/ranges/fences.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace cistern::ranges {
namespace {

using Ended = std::vector<std::pair<Order, std::uint64_t>>;

class Queues {
 public:
  std::uint64_t add(Order order, int fence) {
    Locked hold(lock_);
    return fences_.add(order, std::move(fence));
  }
  // A fence is its number: those in `open` have settled. Odd ones that are not cannot be asked.
  Ended settle() {
    return ended([&](auto ask, auto end) { return fences_.settle(Asked::skip, ask, end); });
  }
  Ended settle_next() {
    return ended([&](auto ask, auto end) { return fences_.settle_next(ask, end); });
  }
  std::vector<int> open, asked;

 private:
  template <class Settle>
  Ended ended(Settle settle) {
    Ended ended;
    asked.clear();
    const bool any = settle(
        [&](int fence) {
          EXPECT_FALSE(lock_.held_here());
          asked.push_back(fence);
          if (std::find(open.begin(), open.end(), fence) != open.end()) return Settled::yes;
          return fence % 2 ? Settled::never : Settled::no;
        },
        [&](Order order, std::uint64_t stamp) {
          EXPECT_TRUE(lock_.held_here());
          ended.push_back({order, stamp});
        });
    EXPECT_EQ(any, !ended.empty());
    return ended;
  }

  Lock lock_;
  Fences<int> fences_{lock_};
};

TEST(Fences, OfAnOrderHaveAllEndedWhenTheNewestHas) {
  Queues queues;
  for (const int fence : {2, 4, 6}) queues.add(1, fence);
  queues.open = {2, 6};
  EXPECT_EQ(queues.settle(), (Ended{{1, 1}, {1, 3}}));
  EXPECT_EQ(queues.asked, (std::vector<int>{2, 6}));
  EXPECT_EQ(queues.settle(), Ended{});
  EXPECT_TRUE(queues.asked.empty());
}

TEST(Fences, OfAnOrderAreAskedFromTheOldestUntilOneHasNot) {
  Queues queues;
  for (const int fence : {2, 4, 6, 8}) queues.add(1, fence);
  EXPECT_EQ(queues.settle(), Ended{});
  EXPECT_EQ(queues.asked, (std::vector<int>{2}));
  queues.open = {2, 6};
  EXPECT_EQ(queues.settle(), (Ended{{1, 1}}));
  EXPECT_EQ(queues.asked, (std::vector<int>{2, 8, 4}));
}

TEST(Fences, OfOneOrderAreAskedInTurnUntilOneHasNot) {
  Queues queues;
  for (const int fence : {2, 4}) queues.add(kNoOrder, fence);
  for (const int fence : {6, 8}) queues.add(1, fence);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(queues.settle_next(), Ended{});
    EXPECT_EQ(queues.asked.size(), 1u);
  }
  queues.open = {2, 6, 8};
  Ended ended = queues.settle_next();
  for (const auto& one : queues.settle_next()) ended.push_back(one);
  std::sort(ended.begin(), ended.end());
  EXPECT_EQ(ended, (Ended{{1, 3}, {1, 4}, {kNoOrder, 1}}));
}

TEST(Fences, InNoOrderEndEachByItself) {
  Queues queues;
  for (const int fence : {2, 4, 6, 8}) queues.add(kNoOrder, fence);
  queues.open = {4, 8};
  EXPECT_EQ(queues.settle(), (Ended{{kNoOrder, 2}, {kNoOrder, 4}}));
  EXPECT_EQ(queues.asked, (std::vector<int>{2, 4, 6, 8}));
  queues.open = {2, 6};
  EXPECT_EQ(queues.settle(), (Ended{{kNoOrder, 1}, {kNoOrder, 3}}));
}

TEST(Fences, ThatCannotBeAskedAreAskedAgain) {
  Queues queues;
  for (const Order order : {Order{1}, kNoOrder}) queues.add(order, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(queues.settle(), Ended{});
    EXPECT_EQ(queues.asked, (std::vector<int>{3, 3}));
  }
  queues.open = {3};
  Ended ended = queues.settle();
  std::sort(ended.begin(), ended.end());
  EXPECT_EQ(ended, (Ended{{1, 1}, {kNoOrder, 2}}));
}

TEST(Fences, ThatCannotBeAskedGoWhereALaterOneOfTheirOrderSaysTheSame) {
  Queues queues;
  for (const int fence : {3, 5, 7, 8, 9}) queues.add(1, fence);
  EXPECT_EQ(queues.settle(), Ended{});
  EXPECT_EQ(queues.asked, (std::vector<int>{3, 9, 5, 7, 8}));
  queues.open = {8};
  EXPECT_EQ(queues.settle(), (Ended{{1, 4}}));
  EXPECT_EQ(queues.settle(), Ended{});
  EXPECT_EQ(queues.asked, (std::vector<int>{9})) << "the last one stays";
  queues.open = {9};
  EXPECT_EQ(queues.settle(), (Ended{{1, 5}}));
}

TEST(Fences, OfOneOrderDoNotHoldAnotherBack) {
  Queues queues;
  queues.add(1, 2);
  queues.add(2, 4);
  queues.open = {4};
  EXPECT_EQ(queues.settle(), (Ended{{2, 2}}));
}

TEST(Fences, OfManyThreadsEndOnceEach) {
  Lock lock;
  Fences<int> fences(lock);
  constexpr int kThreads = 4, kEach = 5'000;
  std::vector<int> ends(kThreads * kEach + 1, 0);  // by stamp, under the lock
  const auto settle = [&] {
    fences.settle(
        Asked::skip, [](int) { return Settled::yes; },
        [&](Order order, std::uint64_t stamp) {
          if (order == kNoOrder) ++ends[stamp];
        });
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < kEach; ++n) {
        {
          Locked hold(lock);
          fences.add(kNoOrder, 0);
        }
        if (n % 3 == 0) settle();
      }
    });
  for (std::thread& thread : threads) thread.join();
  settle();
  EXPECT_EQ(std::count(ends.begin() + 1, ends.end(), 1), kThreads * kEach);
}

}  // namespace
}  // namespace cistern::ranges
