// The clock of its own beside the C library's.
#include "pool/base/clock.hpp"

#include <gtest/gtest.h>
#include <time.h>

namespace cistern {
namespace {

std::uint64_t of_c_library(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

void lies_between_readings_of_the_c_library() {
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t before = of_c_library(CLOCK_MONOTONIC), own = monotonic_ns();
    EXPECT_LE(before, own);
    EXPECT_LE(own, of_c_library(CLOCK_MONOTONIC));
    const std::uint64_t coarse = of_c_library(CLOCK_MONOTONIC_COARSE), own_coarse = coarse_monotonic_ns();
    EXPECT_LE(coarse, own_coarse);
    EXPECT_LE(own_coarse, of_c_library(CLOCK_MONOTONIC_COARSE));
  }
}

TEST(Clock, IsTheSystemsBeforeItsFunctionIsFoundAndAfter) {
  lies_between_readings_of_the_c_library();
  find_clock();
  lies_between_readings_of_the_c_library();
}

}  // namespace
}  // namespace cistern
