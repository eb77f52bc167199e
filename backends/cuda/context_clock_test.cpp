// ContextClock over a fake driver: it never says that work has ended which has not, makes few calls, and none when it
// must not.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "backends/cuda/context.hpp"
#include "backends/cuda/fake_driver.hpp"
#include "tests/support/random.hpp"

namespace cistern::cuda {
namespace {

using cistern::test::new_seed;
using test::FakeDriver;

const CUcontext kContext = FakeDriver::context(0xA000);
const CUcontext kOther = FakeDriver::context(0xB000);

class ContextClockTest : public testing::Test {
 protected:
  ContextClockTest() { FakeDriver::make_current(kContext); }
  ~ContextClockTest() override {
    EXPECT_EQ(driver.wrong(), std::vector<std::string>{});
    EXPECT_EQ(FakeDriver::capture_mode(), kCaptureModeGlobal) << "the program's capture mode is put back";
    EXPECT_EQ(FakeDriver::contexts_pushed(), 1u) << "and its context";
  }
  Settled settled(std::uint64_t number) { return clock.settled(kContext, number, calls); }
  CUstream new_stream(bool blocking) {
    CUstream stream = driver.new_stream(blocking);
    clock.stream_created(stream, !blocking);
    return stream;
  }
  void destroy(CUstream stream) {
    clock.stream_ends(kContext, stream, calls);
    driver.destroy_stream(stream);
  }
  int recorded() { return driver.calls("cuEventRecord"); }

  FakeDriver driver;
  Functions functions = driver.functions();
  CallGate gate;
  DriverCalls calls;
  ContextClock clock{functions, gate};
  CUstream blocking = new_stream(true);
};

TEST_F(ContextClockTest, ASynchronisationNeedsNoCall) {
  driver.enqueue(blocking);
  const auto number = clock.now();
  clock.synchronised(number);
  EXPECT_EQ(settled(number), Settled::yes);
  EXPECT_EQ(driver.all_calls(), 0);
  clock.synchronised(1);
  EXPECT_EQ(settled(number), Settled::yes) << "an older synchronisation takes nothing back";
}

TEST_F(ContextClockTest, OneMarkerAtATimeServesAllBeforeIt) {
  driver.enqueue(blocking);
  const auto first = clock.now(), second = clock.now();
  EXPECT_EQ(settled(second), Settled::no);
  driver.enqueue(blocking);
  const auto third = clock.now();
  EXPECT_EQ(settled(first), Settled::no);
  EXPECT_EQ(settled(third), Settled::no);
  EXPECT_EQ(recorded(), 1);
  driver.end_work_of(blocking);
  EXPECT_EQ(settled(first), Settled::yes);
  EXPECT_EQ(settled(second), Settled::yes);
  EXPECT_EQ(recorded(), 1);
  EXPECT_EQ(settled(third), Settled::yes) << "a second marker, whose work has ended at once";
  EXPECT_EQ(recorded(), 2);
  EXPECT_EQ(driver.events_live(), 1u) << "events are used again";
  EXPECT_GT(calls.queries, 0u);
}

TEST_F(ContextClockTest, WorkAfterTheMarkerIsNotCoveredByIt) {
  driver.enqueue(blocking);
  const auto first = clock.now();
  EXPECT_EQ(settled(first), Settled::no);
  CUstream late = new_stream(false);
  driver.enqueue(late);
  const auto second = clock.now();
  driver.end_work_of(blocking);
  EXPECT_EQ(settled(second), Settled::no);
  EXPECT_EQ(settled(first), Settled::yes);
  driver.end_work_of(late);
  EXPECT_EQ(settled(second), Settled::yes);
}

TEST_F(ContextClockTest, NonBlockingStreamsAreWaitedForToo) {
  CUstream a = new_stream(false), b = new_stream(false);
  driver.enqueue(a);
  driver.enqueue(b);
  const auto number = clock.now();
  EXPECT_EQ(settled(number), Settled::no);
  driver.end_work_of(a);
  EXPECT_EQ(settled(number), Settled::no);
  driver.end_work_of(b);
  EXPECT_EQ(settled(number), Settled::yes);
}

TEST_F(ContextClockTest, AnotherContextIsCurrentAgainAfterwards) {
  driver.enqueue(blocking);
  const auto number = clock.now();
  FakeDriver::make_current(kOther);
  EXPECT_EQ(settled(number), Settled::no);
  EXPECT_EQ(driver.calls("cuCtxPushCurrent"), 1);
  EXPECT_EQ(driver.calls("cuCtxPopCurrent"), 1);
}

TEST_F(ContextClockTest, ADriverWithoutCaptureModes) {
  functions.exchange_capture_mode = [](int*) { return kNotFound; };
  ContextClock old(functions, gate);
  const auto number = old.now();
  old.synchronised(number);
  EXPECT_EQ(old.settled(kContext, number, calls), Settled::yes);
}

// --- Streams that go

TEST_F(ContextClockTest, AStreamDestroyedWithWorkPendingIsStillWaitedFor) {
  for (bool is_blocking : {true, false}) {
    CUstream stream = new_stream(is_blocking);
    driver.enqueue(stream);
    const auto number = clock.now();
    destroy(stream);
    EXPECT_EQ(settled(number), Settled::no);
    const auto later = clock.now();
    EXPECT_EQ(settled(later), Settled::no) << "its work may be under way still when this is asked";
    driver.end_work_of(stream);
    EXPECT_EQ(settled(number), Settled::yes);
    EXPECT_EQ(settled(later), Settled::yes);
  }
}

TEST_F(ContextClockTest, AnIdleStreamLeavesNothingBehind) {
  CUstream stream = new_stream(false);
  const auto number = clock.now();
  destroy(stream);
  EXPECT_EQ(recorded(), 0);
  EXPECT_EQ(settled(number), Settled::yes);
  EXPECT_EQ(recorded(), 1);
}

TEST_F(ContextClockTest, ADestroyThatFailedKeepsTheStream) {
  CUstream stream = new_stream(false);
  clock.stream_ends(kContext, stream, calls);
  clock.stream_created(stream, true);
  driver.enqueue(stream);
  const auto number = clock.now();
  EXPECT_EQ(settled(number), Settled::no);
  driver.end_work_of(stream);
  EXPECT_EQ(settled(number), Settled::yes);
}

// No call may be made while a stream captures, so nothing tells when the work of a stream that goes has ended.
TEST_F(ContextClockTest, AStreamDestroyedDuringACaptureMakesTheRestUnknowable) {
  CUstream stream = new_stream(false);
  driver.enqueue(stream);
  const auto before = clock.now();
  gate.captures = 1;
  destroy(stream);
  EXPECT_EQ(driver.all_calls(), 0);
  gate.captures = 0;
  const auto after = clock.now();
  EXPECT_NE(settled(before), Settled::yes);
  EXPECT_EQ(settled(after), Settled::never);
  const auto number = clock.now();
  driver.end_all_work();
  clock.synchronised(number);
  EXPECT_EQ(settled(before), Settled::yes);
  driver.enqueue(blocking);
  const auto anew = clock.now();
  EXPECT_EQ(settled(anew), Settled::no);
  driver.end_all_work();
  EXPECT_EQ(settled(anew), Settled::yes) << "a synchronisation later all is as before";
}

TEST_F(ContextClockTest, AStreamWhoseStateCannotBeToldIsNotTakenAsIdle) {
  for (const char* failing : {"cuStreamQuery", "cuEventRecord", "cuEventCreate"}) {
    CUstream stream = new_stream(false);
    driver.enqueue(stream);
    const auto number = clock.now();
    driver.fail_always(failing);
    destroy(stream);
    driver.fail_no_more();
    EXPECT_NE(settled(number), Settled::yes) << failing;
    driver.end_all_work();
    clock.synchronised(clock.now());
    EXPECT_EQ(settled(number), Settled::yes) << failing;
    clock.forget();
  }
}

TEST_F(ContextClockTest, NoMarkerIsSetWhileAStreamGoes) {
  CUstream stream = new_stream(false);
  driver.enqueue(stream);
  const auto number = clock.now();
  // Another thread asks just when the stream is in no list.
  driver.meanwhile["cuStreamQuery"] = [&] {
    std::thread([&] {
      FakeDriver::make_current(kContext);
      EXPECT_EQ(settled(number), Settled::no);
    }).join();
  };
  destroy(stream);
  EXPECT_EQ(settled(number), Settled::no);
  driver.end_all_work();
  EXPECT_EQ(settled(number), Settled::yes);
}

TEST_F(ContextClockTest, AStreamWaitsWithGoingForAMarkerThatIsBeingSet) {
  CUstream stream = new_stream(false);
  driver.enqueue(stream);
  const auto number = clock.now();
  std::thread destroyer;
  driver.meanwhile["cuEventRecord"] = [&] {
    destroyer = std::thread([&] {
      FakeDriver::make_current(kContext);
      destroy(stream);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  EXPECT_EQ(settled(number), Settled::no);
  destroyer.join();
  driver.end_all_work();
  EXPECT_EQ(settled(number), Settled::yes);
}

// --- Calls that must not be made, or fail

TEST_F(ContextClockTest, AShutGateMakesNoCall) {
  driver.enqueue(blocking);
  const auto number = clock.now();
  for (auto shut : {+[](CallGate& g) { g.captures = 1; }, +[](CallGate& g) { g.captures = 0, g.closed = true; },
                    +[](CallGate& g) { g.closed = false, g.exiting = [] { return true; }; }}) {
    shut(gate);
    EXPECT_EQ(settled(number), Settled::no);
    clock.synchronised(number - 1);
  }
  EXPECT_EQ(driver.all_calls(), 0);
  clock.synchronised(number);
  EXPECT_EQ(settled(number), Settled::yes) << "what is known is said all the same";
  EXPECT_EQ(gate.inside, 0);
}

TEST_F(ContextClockTest, FailedCallsAnswerNever) {
  for (const char* failing : {"cuCtxGetCurrent", "cuEventCreate", "cuEventRecord", "cuEventQuery"}) {
    ContextClock fresh(functions, gate);
    driver.enqueue(blocking);
    const auto number = fresh.now();
    driver.fail_always(failing, kIllegalAddress);
    EXPECT_EQ(fresh.settled(kContext, number, calls), Settled::never) << failing;
    driver.fail_no_more();
    EXPECT_EQ(fresh.settled(kContext, number, calls), Settled::no) << failing;
    driver.end_all_work();
    EXPECT_EQ(fresh.settled(kContext, number, calls), Settled::yes) << failing;
  }
  FakeDriver::make_current(kOther);
  driver.fail_always("cuCtxPushCurrent", kContextIsDestroyed);
  EXPECT_EQ(settled(clock.now()), Settled::never);
}

// The event on the legacy stream is recorded, that on the other stream is not.
TEST_F(ContextClockTest, AnIncompleteMarkerProvesNothing) {
  CUstream stream = new_stream(false);
  driver.enqueue(stream);
  const auto number = clock.now();
  driver.meanwhile["cuEventRecord"] = [&] { driver.fail_always("cuEventCreate"); };
  EXPECT_EQ(settled(number), Settled::never);
  driver.fail_no_more();
  EXPECT_NE(settled(number), Settled::yes) << "the work on the other stream has not ended";
  driver.end_all_work();
  EXPECT_EQ(settled(number), Settled::yes);
}

TEST_F(ContextClockTest, EveryCallFailingInTurnNeverClaimsWhatIsNotTrue) {
  int failed = 0;
  for (int n = 1;; ++n) {
    ContextClock fresh(functions, gate);
    CUstream a = driver.new_stream(false), b = driver.new_stream(false);
    fresh.stream_created(a, true);
    fresh.stream_created(b, true);
    const int before = driver.all_calls();
    driver.fail_at(n);
    for (int round = 0; round < 4; ++round) {
      driver.enqueue(a);
      driver.enqueue(blocking);
      driver.enqueue(b);
      const auto number = fresh.now();
      const auto point = driver.enqueued();
      for (int look = 0; look < 4; ++look) {
        const Settled answer = fresh.settled(kContext, number, calls);
        EXPECT_TRUE(answer != Settled::yes || driver.ended(point)) << "call " << n << " failed, round " << round;
        if (look == 1) driver.end_work_of(blocking);
        if (look == 2) driver.end_work_of(round % 2 ? a : b);
      }
      if (round == 2) {
        fresh.stream_ends(kContext, b, calls);
        driver.destroy_stream(b);
        b = driver.new_stream(false);
        fresh.stream_created(b, true);
      }
    }
    driver.end_all_work();
    if (driver.all_calls() - before < n) break;
    ++failed;
    driver.fail_no_more();
    FakeDriver::make_current(kContext);
    int relaxed = kCaptureModeGlobal;
    driver.functions().exchange_capture_mode(&relaxed);
  }
  EXPECT_GT(failed, 30);
}

// --- Contexts and processes that go

TEST_F(ContextClockTest, WhatAContextTookAlongHasEnded) {
  CUstream stream = new_stream(false);
  driver.enqueue(stream);
  const auto number = clock.now();
  EXPECT_EQ(settled(number), Settled::no);
  driver.destroy_stream(stream);
  const int before = driver.all_calls();
  clock.forget();
  EXPECT_EQ(settled(number), Settled::yes);
  EXPECT_EQ(driver.all_calls(), before) << "its events went along";
  driver.end_all_work();
  driver.enqueue(blocking);
  const auto anew = clock.now();
  EXPECT_EQ(settled(anew), Settled::no) << "the same handle, a new context";
  driver.end_all_work();
  EXPECT_EQ(settled(anew), Settled::yes);
}

TEST_F(ContextClockTest, ForgettingHealsALoss) {
  CUstream stream = new_stream(false);
  gate.captures = 1;
  destroy(stream);
  gate.captures = 0;
  clock.forget();
  driver.enqueue(blocking);
  EXPECT_EQ(settled(clock.now()), Settled::no);
}

TEST_F(ContextClockTest, AForkedChildForgetsWithoutACall) {
  driver.enqueue(blocking);
  const auto number = clock.now();
  EXPECT_EQ(settled(number), Settled::no);
  const int before = driver.all_calls();
  gate.closed = true;
  clock.forget_in_child();
  EXPECT_EQ(settled(number), Settled::yes);
  EXPECT_EQ(settled(clock.now()), Settled::no);
  EXPECT_EQ(driver.all_calls(), before);
}

// --- Threads

TEST_F(ContextClockTest, ThreadsNeverHearOfAnEndThatIsNotOne) {
  const unsigned seed = new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::atomic<int> early{0}, ended{0}, never{0};
  const auto work = [&](unsigned id) {
    FakeDriver::make_current(kContext);
    std::mt19937 random(seed + id);
    CUstream own = new_stream(random() % 2);
    std::map<std::uint64_t, FakeDriver::Point> waiting;
    for (int step = 0; step < 4000; ++step) {
      const unsigned what = random() % 100;
      if (what < 30)
        driver.enqueue(random() % 2 ? own : blocking);
      else if (what < 45)
        driver.end_work_of(random() % 2 ? own : blocking);
      else if (what < 48) {
        destroy(own);
        own = new_stream(random() % 2);
      } else if (what == 48) {
        const auto number = clock.now();
        driver.end_all_work();
        clock.synchronised(number);
      } else if (what == 49) {
        gate.captures.fetch_add(1);
        std::this_thread::yield();
        gate.captures.fetch_sub(1);
      } else if (what < 70) {
        auto point = driver.enqueued();
        waiting[clock.now()] = std::move(point);
      } else if (!waiting.empty()) {
        auto [number, point] = *waiting.begin();
        switch (settled(number)) {
          case Settled::yes:
            if (!driver.ended(point)) ++early;
            ++ended;
            waiting.erase(waiting.begin());
            break;
          case Settled::never:
            ++never;
            waiting.erase(waiting.begin());
            break;
          case Settled::no:
            break;
        }
      }
    }
    destroy(own);
  };
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < 4; ++id) threads.emplace_back(work, id);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(early, 0);
  EXPECT_GT(ended, 100);
  EXPECT_EQ(gate.inside, 0);
}

}  // namespace
}  // namespace cistern::cuda
