// The judgement is one report's at a time: a report that foreign code asks for in the midst of one, and one of another
// thread, see none.
#include "shim/judging/judging.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "pool/base/lock.hpp"
#include "shim/process/standings.hpp"

namespace cistern {
namespace {

TEST(JudgementHeld, IsHeldWithoutALockAndOnceByAThread) {
  JudgementHeld held;
  EXPECT_EQ(locks_held, 0) << "the dynamic linker is asked in a report";
  EXPECT_TRUE(judgement_is_held_here());
  {
    JudgementHeld nested;
    nested.judge_now(stack_in_use());
    EXPECT_TRUE(judgement_is_held_here());
  }
  EXPECT_TRUE(judgement_is_held_here()) << "the outer report goes on";
}

TEST(JudgementHeld, IsNotSeenByAnotherThread) {
  const JudgementHeld held;
  const char* const own = judgement().why_not;
  std::thread([&] {
    EXPECT_FALSE(judgement_is_held_here());
    EXPECT_FALSE(judgement().is_known);
    EXPECT_STREQ(judgement().why_not, "another report was being written at that time");
    EXPECT_EQ(standing_of_target(std::uintptr_t{4096}, 0), Standing::unclassified);
  }).join();
  EXPECT_EQ(judgement().why_not, own);
}

}  // namespace
}  // namespace cistern
