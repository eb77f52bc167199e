// Turns on streams: nothing comes between the pieces of a copy, whoever needs not wait does not, and nobody waits for
// ever.
#include "pool/staging/turns.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace cistern::staging {
namespace {

using namespace std::chrono_literals;

const int stream_a = 0, stream_b = 0, one_context = 0, other_context = 0;
const Place kA{&one_context, &stream_a}, kB{&one_context, &stream_b}, kDefault{&one_context, nullptr, true},
    kNonBlocking{&one_context, &stream_b, false, false}, kElsewhere{&other_context, nullptr, true};

double seconds(const std::function<void()>& what) {
  const auto begin = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class TurnsTest : public testing::Test {
 protected:
  // Whether a call on the one place waits for a copy in pieces on the other.
  bool waits(const Place& pieces, const Place& call) {
    std::atomic<bool> began{false}, let_go{false};
    std::thread copies([&] {
      Turn turn(turns, pieces.stream, [&] { return pieces; });
      EXPECT_TRUE(turn.lengthen(pieces));
      began = true;
      std::this_thread::sleep_for(50ms);
      let_go = true;
    });
    while (!began) std::this_thread::yield();
    bool waited = false;
    {
      const Turn turn(turns, call.stream, [&] { return call; });
      waited = let_go;
    }
    copies.join();
    return waited;
  }

  Turns turns;
};

TEST_F(TurnsTest, OnlyCallsThatWouldComeBetweenWait) {
  EXPECT_TRUE(waits(kA, kA));
  EXPECT_FALSE(waits(kA, kB));
  EXPECT_TRUE(waits(kA, kDefault));
  EXPECT_TRUE(waits(kDefault, kA));
  EXPECT_TRUE(waits(kDefault, kDefault));
  EXPECT_FALSE(waits(kDefault, kNonBlocking));
  EXPECT_FALSE(waits(kDefault, kElsewhere));
}

// Each number is a command on one stream, and each copy has eight in a row.
TEST_F(TurnsTest, NothingComesBetweenThePiecesOfACopy) {
  struct {
    Lock lock;
    std::vector<int> commands;
  } stream;
  const auto enqueue = [&](int who) {
    Locked hold(stream.lock);
    stream.commands.push_back(who);
  };
  std::atomic<int> whole{0};
  const auto copies = [&](int who) {
    for (int i = 0; i < 300; ++i) {
      Turn turn(turns, kA.stream, [] { return kA; });
      if (!turn.lengthen(kA)) continue;
      ++whole;
      for (int piece = 0; piece < 8; ++piece, std::this_thread::yield()) enqueue(who);
    }
  };
  const auto calls = [&](const Place& place) {
    for (int i = 0; i < 20'000; ++i) {
      const Turn turn(turns, place.stream, [&] { return place; });
      enqueue(0);
    }
  };
  std::thread threads[] = {std::thread(copies, 1), std::thread(copies, 2), std::thread(calls, kA),
                           std::thread(calls, kDefault)};
  for (std::thread& each : threads) each.join();
  int torn = 0;
  for (std::size_t at = 0; at < stream.commands.size();) {
    const int who = stream.commands[at];
    if (!who) {
      ++at;
      continue;
    }
    for (int piece = 0; piece < 8; ++piece, ++at) torn += at >= stream.commands.size() || stream.commands[at] != who;
  }
  EXPECT_EQ(torn, 0);
  EXPECT_GT(whole, 0);
}

TEST_F(TurnsTest, ACopyIsNotCutWhereACallIsUnderWay) {
  const Turn call(turns, kA.stream, [] { return kA; });
  std::thread([&] {
    EXPECT_FALSE(Turn(turns, kA.stream, [] { return kA; }).lengthen(kA));
    EXPECT_FALSE(Turn(turns, kDefault.stream, [] { return kDefault; }).lengthen(kDefault));
    EXPECT_TRUE(Turn(turns, kNonBlocking.stream, [] { return kNonBlocking; }).lengthen(kNonBlocking));
  }).join();
}

// As where a copy waits for what the other thread is about to do.
TEST_F(TurnsTest, NobodyWaitsForEver) {
  Turn turn(turns, kA.stream, [] { return kA; });
  ASSERT_TRUE(turn.lengthen(kA));
  const auto call = [&] { Turn(turns, kA.stream, [] { return kA; }); };
  double first = 0, second = 0;
  std::thread([&] {
    first = seconds(call);
    second = seconds(call);
  }).join();
  EXPECT_GE(first, 0.9);
  EXPECT_LT(second, 0.5);  // once is enough
}

TEST_F(TurnsTest, AChildBeginsAnew) {
  Turn turn(turns, kA.stream, [] { return kA; });
  ASSERT_TRUE(turn.lengthen(kA));
  turns.before_fork();
  turns.after_fork();
  turns.forget_in_child();
  Turn other(turns, kA.stream, [] { return kA; });
  EXPECT_TRUE(other.lengthen(kA));
}

}  // namespace
}  // namespace cistern::staging
