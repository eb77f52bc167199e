// Room for a call that is out of memory: when it is made again, and what its outputs are then. No driver is there.
#include "shim/cuda/passed_with_room.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace cistern::cuda {
namespace {

TEST(Room, IsThereAgainWhenAnotherThreadsFreeReturnedMeanwhile) {
  CudaState& s = state();
  int calls = 0;
  const CUresult answer = with_room(s, nullptr, 100, [&] {
    if (++calls == 3) return kSuccess;
    s.pools.source().frees_done.fetch_add(1);  // after the driver had said no, and nothing is kept any more
    return kOutOfMemory;
  });
  EXPECT_EQ(answer, kSuccess);
  EXPECT_EQ(calls, 3);
}

TEST(Room, IsLookedForOnceWhereNothingCameFree) {
  int calls = 0;
  EXPECT_EQ(with_room(state(), nullptr, 100, [&] { return ++calls, kOutOfMemory; }), kOutOfMemory);
  EXPECT_EQ(calls, 1);
}

TEST(Room, IsNotWaitedForForEver) {
  CudaState& s = state();
  int calls = 0;
  const auto never = [&] {
    s.pools.source().frees_done.fetch_add(1);
    return ++calls, kOutOfMemory;
  };
  EXPECT_EQ(with_room(s, nullptr, 100, never), kOutOfMemory);
  EXPECT_EQ(calls, kTriesMax + 1);
}

TEST(Room, OtherErrorsAreAnswersAtOnce) {
  int calls = 0;
  EXPECT_EQ(with_room(state(), nullptr, 100, [&] { return ++calls, kInvalidValue; }), kInvalidValue);
  EXPECT_EQ(calls, 1);
}

TEST(Room, ACallThatIsMadeAgainFindsItsOutputsAsTheyWere) {
  CudaState& s = state();
  int number = 7;
  void* values[3] = {nullptr, &number, &s};
  char log[] = "untouched";
  int calls = 0;
  const auto pass = [&] {
    EXPECT_EQ(number, 7);
    EXPECT_EQ(values[0], nullptr);
    EXPECT_EQ(values[2], &s);
    EXPECT_STREQ(log, "untouched");
    s.pools.source().frees_done.fetch_add(1);
    if (++calls == 2) return kSuccess;
    number = 8;
    values[0] = values[2] = log;
    std::strcpy(log, "a failure");
    return kOutOfMemory;
  };
  EXPECT_EQ(with_room_restoring(pass, output(&number), array(values, 3), array(log, sizeof log)), kSuccess);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(number, 7);
}

TEST(Room, OutputsMayBeMissing) {
  CudaState& s = state();
  int calls = 0;
  const auto pass = [&] {
    s.pools.source().frees_done.fetch_add(1);
    return ++calls == 2 ? kSuccess : kOutOfMemory;
  };
  EXPECT_EQ(with_room_restoring(pass, output(static_cast<int*>(nullptr)), array(static_cast<void**>(nullptr), 5)),
            kSuccess);
}

}  // namespace
}  // namespace cistern::cuda
