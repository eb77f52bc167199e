// Captures: the documented rules of what a capture forbids, over all modes of two threads, and what keeps our own calls
// away from captures.
#include "shim/cuda/captures.hpp"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "tests/support/random.hpp"

namespace cistern::cuda {
namespace {

using test::in_new_thread;
using test::new_seed;

constexpr int kNoCapture = -1;
const CUcontext kContext = reinterpret_cast<CUcontext>(0xA0), kOther = reinterpret_cast<CUcontext>(0xB0);

CUstream stream(std::uintptr_t id) { return reinterpret_cast<CUstream>(id); }

class CapturesTest : public testing::Test {
 protected:
  CallGate gate;
  Captures captures{gate};
};

// CUDA Driver API, cuThreadExchangeStreamCaptureMode, in its own words.
bool prohibited(int mode_of_thread, int own_capture, int others_capture) {
  const bool ongoing_not_relaxed = own_capture == kCaptureModeGlobal || own_capture == kCaptureModeThreadLocal;
  const bool concurrent_global = others_capture == kCaptureModeGlobal;
  switch (mode_of_thread) {
    case kCaptureModeGlobal:
      return ongoing_not_relaxed || concurrent_global;
    case kCaptureModeThreadLocal:
      return ongoing_not_relaxed;
    default:
      return false;
  }
}

TEST_F(CapturesTest, UnsafeCallsAreForbiddenAsDocumented) {
  for (int mode : {kCaptureModeGlobal, kCaptureModeThreadLocal, kCaptureModeRelaxed})
    for (int own : {kNoCapture, kCaptureModeGlobal, kCaptureModeThreadLocal, kCaptureModeRelaxed})
      for (int others : {kNoCapture, kCaptureModeGlobal, kCaptureModeThreadLocal, kCaptureModeRelaxed})
        in_new_thread([&] {
          SCOPED_TRACE(testing::Message() << "mode " << mode << ", own capture " << own << ", other's " << others);
          Captures::mode_exchanged(mode);
          if (own != kNoCapture) captures.begun(stream(0x10), false, own, kContext);
          in_new_thread([&] {
            if (others != kNoCapture) captures.begun(stream(0x20), false, others, kContext);
          });
          EXPECT_EQ(captures.forbid_unsafe_calls(), prohibited(mode, own, others));
          EXPECT_EQ(captures.any(), own != kNoCapture || others != kNoCapture);
          captures.ended(stream(0x10), false);
          EXPECT_EQ(captures.forbid_unsafe_calls(), prohibited(mode, kNoCapture, others));
          captures.ended(stream(0x20), false);
          EXPECT_FALSE(captures.forbid_unsafe_calls());
          EXPECT_EQ(gate.captures, 0);
        });
}

TEST_F(CapturesTest, AThreadStartsInGlobalMode) {
  in_new_thread([&] {
    Captures::mode_exchanged(kCaptureModeRelaxed);
    captures.begun(stream(0x10), false, kCaptureModeGlobal, kContext);
    EXPECT_FALSE(captures.forbid_unsafe_calls());
    in_new_thread([&] { EXPECT_TRUE(captures.forbid_unsafe_calls()) << "modes are each thread's own"; });
    captures.ended(stream(0x10), false);
  });
}

TEST_F(CapturesTest, ADefaultStreamPerThreadIsEachThreadsOwn) {
  for (CUstream handle : {stream(0), stream(2)})
    in_new_thread([&] {
      captures.begun(handle, true, kCaptureModeThreadLocal, kContext);
      EXPECT_TRUE(captures.capturing(stream(0), true));
      EXPECT_TRUE(captures.capturing(stream(2), true));
      EXPECT_TRUE(captures.capturing(stream(2), false))
          << "2 is the thread's own stream whatever the program's default";
      EXPECT_FALSE(captures.capturing(stream(0), false)) << "0 is the legacy stream here";
      in_new_thread([&] {
        EXPECT_FALSE(captures.capturing(stream(2), false));
        captures.ended(stream(2), true);
      });
      EXPECT_EQ(gate.captures, 1);
      captures.ended(stream(2), false);
      EXPECT_EQ(gate.captures, 0);
    });
}

TEST_F(CapturesTest, AnotherThreadMayEndTheCaptureOfAStream) {
  captures.begun(stream(0x10), false, kCaptureModeRelaxed, kContext);
  in_new_thread([&] {
    EXPECT_TRUE(captures.capturing(stream(0x10), false));
    captures.ended(stream(0x10), true);
  });
  EXPECT_FALSE(captures.any());
}

TEST_F(CapturesTest, StreamsAndContextsTakeTheirCapturesAlong) {
  captures.begun(stream(0x10), false, kCaptureModeGlobal, kContext);
  captures.begun(stream(0x20), false, kCaptureModeGlobal, kContext);
  captures.begun(stream(0x30), false, kCaptureModeGlobal, kOther);
  captures.stream_gone(stream(0x99));
  EXPECT_EQ(gate.captures, 3);
  captures.stream_gone(stream(0x10));
  EXPECT_EQ(gate.captures, 2);
  captures.context_gone(kContext);
  EXPECT_EQ(gate.captures, 1);
  EXPECT_TRUE(captures.capturing(stream(0x30), false));
  captures.ended(stream(0x77), false);
  EXPECT_EQ(gate.captures, 1) << "an end without a beginning changes nothing";
  captures.context_gone(kOther);
  EXPECT_EQ(gate.captures, 0);
}

// cuStreamBeginCapture on a stream that captures already is refused; the capture goes on.
TEST_F(CapturesTest, ABeginningThatFailedEndsNoOtherCapture) {
  captures.begun(stream(0x10), false, kCaptureModeGlobal, kContext);
  captures.begun(stream(0x10), false, kCaptureModeRelaxed, kContext);
  captures.ended(stream(0x10), false);
  EXPECT_TRUE(captures.capturing(stream(0x10), false));
  EXPECT_TRUE(captures.forbid_unsafe_calls()) << "the capture in global mode is the one that goes on";
  captures.ended(stream(0x10), false);
  EXPECT_FALSE(captures.any());
}

TEST_F(CapturesTest, ACaptureWaitsForCallsOfOurOwn) {
  std::atomic<bool> begun{false};
  std::thread capturer;
  {
    Through own_call(gate);
    ASSERT_TRUE(own_call);
    capturer = std::thread([&] {
      captures.begun(stream(0x10), false, kCaptureModeRelaxed, kContext);
      begun = true;
    });
    while (!captures.any()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(begun);
    Through late(gate);
    EXPECT_FALSE(late) << "no further call comes in between";
  }
  capturer.join();
  EXPECT_TRUE(begun);
  EXPECT_EQ(gate.inside, 0);
}

TEST_F(CapturesTest, AForkedChildForgets) {
  captures.begun(stream(0x10), false, kCaptureModeGlobal, kContext);
  gate.inside = 1;
  captures.before_fork();
  captures.after_fork();
  captures.forget_in_child();
  EXPECT_FALSE(captures.any());
  EXPECT_FALSE(captures.capturing(stream(0x10), false));
  EXPECT_FALSE(captures.forbid_unsafe_calls());
  EXPECT_TRUE(Through(gate));
}

TEST_F(CapturesTest, TheGateIsShutExactlyWhileSomethingCaptures) {
  const unsigned seed = new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::atomic<int> errors{0}, capturing{0};
  const auto work = [&](unsigned id) {
    std::mt19937 random(seed + id);
    for (int step = 0; step < 2000; ++step) {
      // Two streams of this thread's own, or its default stream.
      const CUstream which = random() % 3 ? stream(0x100 * (id + 1) + random() % 2) : stream(2);
      if (captures.capturing(which, false)) {
        --capturing;
        captures.ended(which, false);
      } else if (random() % 2) {
        captures.begun(which, false, static_cast<int>(random() % 3), kContext);
        ++capturing;
      }
      if (random() % 4) continue;
      Through own_call(gate);
      if (own_call && capturing) ++errors;
    }
    for (CUstream which : {stream(0x100 * (id + 1)), stream(0x100 * (id + 1) + 1), stream(2)}) {
      if (captures.capturing(which, false)) --capturing;
      captures.ended(which, false);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < 4; ++id) threads.emplace_back(work, id);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  EXPECT_EQ(capturing, 0);
  EXPECT_EQ(gate.captures, 0);
  EXPECT_EQ(gate.inside, 0);
}

}  // namespace
}  // namespace cistern::cuda
