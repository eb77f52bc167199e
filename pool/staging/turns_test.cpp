// Turns on streams: no call comes between the pieces of a copy, no call waits without need, and each wait ends.
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
const StreamKey kA{&one_context, &stream_a}, kB{&one_context, &stream_b}, kDefault{&one_context, nullptr, true},
    kNonBlocking{&one_context, &stream_b, false, false}, kElsewhere{&other_context, nullptr, true};

double seconds(const std::function<void()>& what) {
  const auto begin = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class TurnsTest : public testing::Test {
 protected:
  // A turn on the stream with this key.
  struct At : Turn {
    At(Turns& turns, const StreamKey& key) : Turn(turns, key.context, key.stream, [&] { return key; }) {}
  };
  // Longer than a use of a stream is remembered.
  static void be_forgotten() { std::this_thread::sleep_for(30ms); }

  // Whether a call on one stream waits for a copy in pieces on the other.
  bool waits(const StreamKey& pieces, const StreamKey& call) {
    std::atomic<bool> began{false}, called{false}, let_go{false};
    std::thread copies([&] {
      be_forgotten();
      At turn(turns, pieces);
      EXPECT_TRUE(turn.lengthen(pieces));
      began = true;
      for (int i = 0; i < 200 && !called; ++i) std::this_thread::sleep_for(1ms);
      let_go = true;
    });
    while (!began) std::this_thread::yield();
    bool waited = false;
    {
      const At turn(turns, call);
      waited = let_go;
      called = true;
    }
    copies.join();
    return waited;
  }

  Turns turns{60'000'000'000};
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
  std::atomic<bool> done{false};
  const auto copies = [&](int who) {
    while (whole < 50) {
      At turn(turns, kA);
      if (!turn.lengthen(kA)) continue;
      ++whole;
      for (int piece = 0; piece < 8; ++piece, std::this_thread::yield()) enqueue(who);
    }
  };
  // Now and then: who calls often is never met.
  const auto calls = [&](const StreamKey& key) {
    for (; !done; std::this_thread::sleep_for(25ms)) {
      const At turn(turns, key);
      enqueue(0);
    }
  };
  std::thread calling[] = {std::thread(calls, kA), std::thread(calls, kDefault)};
  std::thread copying(copies, 1);
  copying.join();
  done = true;
  for (std::thread& each : calling) each.join();
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
}

TEST_F(TurnsTest, ACopyIsNotCutWhereOthersAre) {
  const auto lengthens = [&](const StreamKey& key) { return At(turns, key).lengthen(key); };
  {
    const At call(turns, kA);
    std::thread([&] {
      EXPECT_FALSE(lengthens(kA));
      EXPECT_FALSE(lengthens(kDefault));
      EXPECT_TRUE(lengthens(kNonBlocking));
    }).join();
  }
  // Nor soon afterwards, if this machine is soon enough; but for who used it last alone.
  bool refused = false;
  for (int i = 0; i < 100 && !refused; ++i) {
    { const At call(turns, kA); }
    std::thread([&] { refused = !lengthens(kA); }).join();
  }
  EXPECT_TRUE(refused);
  be_forgotten();
  EXPECT_TRUE(lengthens(kA));
  EXPECT_TRUE(lengthens(kA));
}

TEST_F(TurnsTest, WhoWaitsComesBeforeTheNextCopy) {
  std::atomic<bool> began{false}, called{false};
  std::thread copies([&] {
    be_forgotten();
    {
      At first(turns, kA);
      EXPECT_TRUE(first.lengthen(kA));
      began = true;
      std::this_thread::sleep_for(50ms);
    }
    // Until the other one has had its turn no copy is cut.
    while (!called) {
      At next(turns, kA);
      EXPECT_FALSE(next.lengthen(kA) && !called);
    }
  });
  while (!began) std::this_thread::yield();
  {
    const At call(turns, kA);
    called = true;
  }
  copies.join();
}

TEST_F(TurnsTest, AShortOneAgainLetsOthersThrough) {
  std::thread([&] { At(turns, kB); }).join();
  be_forgotten();
  At turn(turns, kA);
  ASSERT_TRUE(turn.lengthen(kA));
  turn.shorten(kA);
  std::thread([&] { EXPECT_LT(seconds([&] { At(turns, kA); }), 30); }).join();
}

// As where a copy waits for what the other thread is about to do: once, and never again.
TEST_F(TurnsTest, NobodyWaitsForEver) {
  Turns turns(300'000'000);
  At turn(turns, kA);
  ASSERT_TRUE(turn.lengthen(kA));
  const auto call = [&] { At(turns, kA); };
  double first = 0, second = 0;
  std::thread([&] {
    first = seconds(call);
    second = seconds(call);
  }).join();
  EXPECT_GE(first, 0.3);
  EXPECT_LT(second, 0.3);
  be_forgotten();
  EXPECT_FALSE(At(turns, kB).lengthen(kB));
}

// As where the copy is long, or its thread gets little of a busy machine.
TEST_F(TurnsTest, WhoMakesProgressIsWaitedFor) {
  Turns turns(1'000'000'000);
  std::atomic<bool> ended{false}, came_between{false}, waits{false};
  At turn(turns, kA);
  ASSERT_TRUE(turn.lengthen(kA));
  std::thread other([&] {
    waits = true;
    At call(turns, kA);
    came_between = !ended;
  });
  while (!waits) std::this_thread::yield();
  for (int piece = 0; piece < 150; ++piece) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    turn.progressed();
  }
  ended = true;
  turn.shorten(kA);
  other.join();
  EXPECT_FALSE(came_between);
}

TEST_F(TurnsTest, AChildBeginsAnew) {
  At turn(turns, kA);
  ASSERT_TRUE(turn.lengthen(kA));
  turns.before_fork();
  turns.after_fork();
  turns.forget_in_child();
  At other(turns, kA);
  EXPECT_TRUE(other.lengthen(kA));
}

}  // namespace
}  // namespace cistern::staging
