// QueueClock and BufferSource over a fake driver: markers are few, shared, given back, and never waited for.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "backends/opencl/buffer_source.hpp"
#include "pool/recycle_pool.hpp"

namespace cistern::opencl {
namespace {

// One fake driver per test; the function pointers find it here.
struct FakeDriver {
  std::map<std::uintptr_t, cl_int> events;  // alive, with their status
  std::uintptr_t last_event = 0;
  int markers = 0, blocks = 0, creates = 0, releases = 0, flushes = 0, finishes = 0;
  std::vector<std::uintptr_t> awaited;  // events
  cl_int wait_answer = kSuccess;
  cl_uint references = 1;
  cl_int create_error = kSuccess;
  bool marker_fails = false;
};
FakeDriver* driver = nullptr;

cl_event event_of(std::uintptr_t id) { return reinterpret_cast<cl_event>(id); }

const Functions kFunctions{
    .create_buffer =
        [](cl_context, cl_bitfield, std::size_t, void*, cl_int* error) {
          *error = driver->create_error;
          return driver->create_error ? nullptr : reinterpret_cast<cl_mem>(0x1000 + 16 * ++driver->creates);
        },
    .release_memory = [](cl_mem) { return ++driver->releases, kSuccess; },
    .memory_info =
        [](cl_mem, cl_uint name, std::size_t, void* value, std::size_t*) {
          *static_cast<cl_uint*>(value) = name == kMemReferenceCount ? driver->references : 0;
          return kSuccess;
        },
    .enqueue_marker =
        [](cl_command_queue, cl_uint, const cl_event*, cl_event* event) {
          if (driver->marker_fails) return kOutOfResources;
          ++driver->markers;
          driver->events[++driver->last_event] = 3;  // CL_QUEUED
          *event = event_of(driver->last_event);
          return kSuccess;
        },
    .event_info =
        [](cl_event event, cl_uint, std::size_t, void* value, std::size_t*) {
          *static_cast<cl_int*>(value) = driver->events.at(reinterpret_cast<std::uintptr_t>(event));
          return kSuccess;
        },
    .release_event =
        [](cl_event event) {
          EXPECT_EQ(driver->events.erase(reinterpret_cast<std::uintptr_t>(event)), 1u);
          return kSuccess;
        },
    .wait_for_events =
        [](cl_uint, const cl_event* events) {
          EXPECT_GT(driver->flushes, 0) << "nobody begins";
          driver->awaited.push_back(reinterpret_cast<std::uintptr_t>(events[0]));
          for (auto& [event, status] : driver->events)
            if (event <= driver->awaited.back()) status = driver->wait_answer ? -5 : kComplete;
          return driver->wait_answer;
        },
    .flush = [](cl_command_queue) { return ++driver->flushes, kSuccess; },
    .finish = [](cl_command_queue) { return ++driver->finishes, kSuccess; },
};

class QueueClockTest : public testing::Test {
 protected:
  QueueClockTest() { driver = &fake; }
  std::shared_ptr<QueueClock> new_clock(bool in_order = true) {
    return std::make_shared<QueueClock>(kFunctions, calls, reinterpret_cast<cl_command_queue>(0x10), in_order);
  }
  FakeDriver fake;
  DriverCalls calls;
};

TEST_F(QueueClockTest, WhatTheProgramWaitedForNeedsNoMarker) {
  auto clock = new_clock();
  const auto number = clock->note_command();
  clock->note_completed_up_to(clock->enqueued());
  EXPECT_EQ(clock->settled(number), Settled::yes);
  EXPECT_EQ(fake.markers, 0);
}

TEST_F(QueueClockTest, OneMarkerServesAllCommandsBeforeIt) {
  auto clock = new_clock();
  const auto first = clock->note_command(), second = clock->note_command();
  EXPECT_EQ(clock->settled(first), Settled::no);
  EXPECT_EQ(clock->settled(second), Settled::no);
  EXPECT_EQ(fake.markers, 1);
  const auto third = clock->note_command();
  EXPECT_EQ(clock->settled(third), Settled::no);
  EXPECT_EQ(fake.markers, 2) << "a later command is not covered by the first marker";
  fake.events[1] = kComplete;
  EXPECT_EQ(clock->settled(second), Settled::yes);
  EXPECT_EQ(clock->settled(third), Settled::no);
  EXPECT_EQ(fake.events.count(1), 0u) << "a marker that has ended is given back";
}

TEST_F(QueueClockTest, ACommandThatFailedHasEnded) {
  auto clock = new_clock();
  const auto number = clock->note_command();
  clock->settled(number);
  fake.events[1] = -14;
  EXPECT_EQ(clock->settled(number), Settled::yes);
}

TEST_F(QueueClockTest, WithoutAMarkerItCanNeverBeKnown) {
  auto clock = new_clock();
  fake.marker_fails = true;
  EXPECT_EQ(clock->settled(clock->note_command()), Settled::never);
}

TEST_F(QueueClockTest, AClosedClockHoldsNothingOfItsQueue) {
  auto clock = new_clock();
  const auto first = clock->note_command();
  clock->settled(first);
  const auto second = clock->note_command();
  clock->settled(second);
  ASSERT_EQ(fake.events.size(), 2u);
  fake.events[1] = kComplete;
  clock->close();
  EXPECT_TRUE(fake.events.empty()) << "a marker would keep the queue";
  EXPECT_EQ(clock->settled(first), Settled::yes) << "what has ended by then is known";
  EXPECT_EQ(clock->settled(second), Settled::never);
  EXPECT_EQ(fake.markers, 2) << "the queue may be gone";
}

TEST_F(QueueClockTest, WhatIsKnownIsKnownWithoutAskingTheDriver) {
  auto clock = new_clock();
  const auto number = clock->note_command();
  EXPECT_EQ(clock->known(number), Settled::no);
  clock->settled(number);
  fake.events[1] = kComplete;
  const auto queries = calls.queries.load();
  EXPECT_EQ(clock->known(number), Settled::no) << "nobody has asked since";
  clock->settled(number);
  EXPECT_EQ(clock->known(number), Settled::yes);
  EXPECT_EQ(calls.queries.load(), queries + 1);
  const auto next = clock->note_command();
  clock->close();
  EXPECT_EQ(clock->known(number), Settled::yes);
  EXPECT_EQ(clock->known(next), Settled::never);
}

TEST_F(QueueClockTest, ClosingAnIdleQueueEnqueuesNothing) {
  auto clock = new_clock();
  clock->note_command();
  clock->note_completed_up_to(clock->enqueued());
  clock->close();
  EXPECT_EQ(fake.markers, 0);
}

TEST_F(QueueClockTest, DroppedMarkersAreGivenBackAndCanBeMadeAgain) {
  auto clock = new_clock();
  const auto number = clock->note_command();
  clock->settled(number);
  clock->drop_markers();
  EXPECT_TRUE(fake.events.empty());
  EXPECT_EQ(clock->settled(number), Settled::no);
  EXPECT_EQ(fake.markers, 2);
}

TEST_F(QueueClockTest, TheEndOfAClockGivesItsMarkersBack) {
  auto clock = new_clock();
  clock->settled(clock->note_command());
  clock.reset();
  EXPECT_TRUE(fake.events.empty());
}

TEST_F(QueueClockTest, AForkedChildCallsNoDriver) {
  auto clock = new_clock();
  const auto number = clock->note_command();
  clock->settled(number);
  QueueClock::abandon_all_in_child();
  EXPECT_EQ(clock->settled(number), Settled::never);
  clock->close();
  clock.reset();
  EXPECT_EQ(fake.events.size(), 1u) << "the marker is the parent's";
  EXPECT_EQ(fake.markers, 1);
}

using Order = QueueClock::Order;

TEST_F(QueueClockTest, AnInOrderQueueKeepsWhatIsBehindItsOwnCommands) {
  auto clock = new_clock();
  EXPECT_EQ(clock->keep_in_order(clock->note_command()), Order::kept);
  EXPECT_EQ(fake.markers, 0) << "no call of the driver";
  clock->set_in_order(false);
  EXPECT_EQ(clock->keep_in_order(clock->note_command()), Order::unordered);
}

TEST_F(QueueClockTest, NothingIsKeptWhileAForeignCommandIsPending) {
  auto clock = new_clock();
  const auto number = clock->note_command();
  clock->begin_foreign();
  EXPECT_EQ(clock->keep_in_order(number), Order::foreign) << "it may be in the queue already";
  const auto foreign = clock->note_command();
  clock->end_foreign(foreign);
  EXPECT_EQ(clock->keep_in_order(number), Order::foreign);
  clock->note_completed_up_to(foreign);
  EXPECT_EQ(clock->keep_in_order(clock->note_command()), Order::kept);
  clock->begin_foreign();
  clock->end_foreign(0);
  EXPECT_EQ(clock->keep_in_order(number), Order::kept) << "it was not enqueued";
}

TEST_F(QueueClockTest, WhatWasKeptIsWaitedForAndNothingBehindIt) {
  auto clock = new_clock();
  clock->keep_in_order(clock->note_command());
  clock->begin_foreign();
  EXPECT_EQ(fake.markers, 1) << "in front of the foreign command";
  const auto foreign = clock->note_command();
  clock->end_foreign(foreign);
  EXPECT_EQ(clock->settled(foreign), Settled::no);
  ASSERT_EQ(fake.markers, 2);
  clock->wait_for_order();
  EXPECT_EQ(fake.awaited, std::vector<std::uintptr_t>{1});
  EXPECT_EQ(clock->known(foreign), Settled::no);
  clock->wait_for_order();
  EXPECT_EQ(fake.awaited.size(), 1u) << "it has ended";
}

TEST_F(QueueClockTest, AMarkerInFrontOfForeignCommandsIsWaitedForBeforeItIsDropped) {
  auto clock = new_clock();
  clock->keep_in_order(clock->note_command());
  clock->drop_markers();
  EXPECT_TRUE(fake.awaited.empty()) << "another one could be made";
  clock->begin_foreign();
  clock->drop_markers();
  EXPECT_EQ(fake.awaited.size(), 1u);
  EXPECT_TRUE(fake.events.empty());
}

TEST_F(QueueClockTest, WithoutAMarkerInFrontOfAForeignCommandTheQueueIsWaitedFor) {
  auto clock = new_clock();
  const auto number = clock->note_command();
  clock->keep_in_order(number);
  fake.marker_fails = true;
  clock->begin_foreign();
  EXPECT_EQ(fake.finishes, 1);
  EXPECT_EQ(clock->known(number), Settled::yes);
}

TEST_F(QueueClockTest, ACommandThatFailedNeedNotBeOrdered) {
  auto clock = new_clock();
  const auto number = clock->note_command();
  clock->keep_in_order(number);
  fake.wait_answer = kFailedInWaitList;
  clock->wait_for_order();
  EXPECT_EQ(clock->known(number), Settled::yes);
}

TEST_F(QueueClockTest, TheEndOfOrderIsForGoodAndAClosedQueueHasOrderedAll) {
  auto ended = new_clock(), clock = new_clock();
  ended->end_order();
  EXPECT_EQ(ended->keep_in_order(ended->note_command()), Order::ended);
  const auto number = clock->note_command();
  clock->keep_in_order(number);
  clock->close();
  EXPECT_EQ(fake.awaited.size(), 1u);
  EXPECT_EQ(clock->known(number), Settled::yes);
  EXPECT_EQ(clock->keep_in_order(number), Order::ended);
  EXPECT_TRUE(fake.events.empty());
}

TEST_F(QueueClockTest, NothingIsOrderedInAForkedChild) {
  auto clock = new_clock();
  const auto number = clock->note_command();
  clock->keep_in_order(number);
  QueueClock::abandon_all_in_child();
  EXPECT_EQ(clock->keep_in_order(number), Order::ended);
  clock->begin_foreign();
  clock->wait_for_order();
  EXPECT_EQ(fake.markers, 0);
  EXPECT_TRUE(fake.awaited.empty());
}

TEST_F(QueueClockTest, ABufferIsGivenAgainOnlyAfterEveryQueueAndTheDriverLetGo) {
  BufferSource source(kFunctions, calls);
  RecyclePool<BufferSource> pool(source);
  pool.set_limits({.bytes_max = 1 << 20});
  auto a = new_clock(), b = new_clock(false);
  const PoolKey key{1, 0, 4096};
  auto allocated = pool.allocate(key, {nullptr, 0, 4096}, 1);
  ASSERT_TRUE(allocated.result.ok);
  fake.references = 2;
  Vector<Use> uses;
  uses.push_back({a, a->note_command()});
  uses.push_back({b, b->note_command()});
  pool.give(key, allocated.result.chunk, std::move(uses), true, 1);
  EXPECT_FALSE(pool.take(key, 1));
  a->note_completed_up_to(1);
  EXPECT_FALSE(pool.take(key, 1));
  for (auto& [event, status] : fake.events) status = kComplete;
  EXPECT_FALSE(pool.take(key, 1)) << "the driver still holds a reference";
  fake.references = 1;
  EXPECT_EQ(pool.take(key, 1), allocated.result.chunk);
}

TEST_F(QueueClockTest, NativeErrorsPassUnchanged) {
  BufferSource source(kFunctions, calls);
  fake.create_error = -61;
  auto acquired = source.acquire({nullptr, 0, 0});
  EXPECT_FALSE(acquired.ok);
  EXPECT_EQ(acquired.error, -61);
  EXPECT_EQ(calls.allocs, 0u);
}

}  // namespace
}  // namespace cistern::opencl
