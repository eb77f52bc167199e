// Functions of the program's that graphs run: what is kept of them, and for how long. No driver is there.
#include "shim/cuda/host_functions.hpp"

#include <gtest/gtest.h>

namespace cistern::cuda {
namespace {

int runs = 0;
void count(void* by) { runs += static_cast<int>(reinterpret_cast<std::uintptr_t>(by)); }
void count_twice(void* by) { count(by), count(by); }
void* argument(std::uintptr_t of) { return reinterpret_cast<void*>(of); }

bool is_kept(const CUDA_HOST_NODE_PARAMS& host) {
  const CUDA_HOST_NODE_PARAMS ours = run_by_graph(host);
  dropped(ours);
  return ours.function != host.function;
}

TEST(HostFunctions, OfOneFunctionAndArgumentOneIsKept) {
  const CUDA_HOST_NODE_PARAMS first = run_by_graph({count, argument(1)}), same = run_by_graph({count, argument(1)});
  const CUDA_HOST_NODE_PARAMS other = run_by_graph({count_twice, argument(1)});
  EXPECT_EQ(same.argument, first.argument);
  EXPECT_NE(other.argument, first.argument);
  runs = 0;
  for (const CUDA_HOST_NODE_PARAMS& ours : {first, same, other}) ours.function(ours.argument);
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(as_passed(other).function, &count_twice);
  dropped(same);  // another call has it
  first.function(first.argument);
  EXPECT_EQ(runs, 5);
  dropped(first);
  dropped(other);
}

TEST(HostFunctions, WhatFailedIsNotKeptAndWhatIsKeptIsBounded) {
  for (std::uintptr_t of = 1; of <= 2 * kKeptForGraphsMax; ++of) dropped(run_by_graph({count, argument(of)}));
  EXPECT_TRUE(is_kept({count, argument(1)}));
  for (std::uintptr_t of = 1; of <= kKeptForGraphsMax; ++of) run_by_graph({count, argument(of)});
  EXPECT_TRUE(is_kept({count, argument(1)})) << "it was there";
  EXPECT_FALSE(is_kept({count, argument(kKeptForGraphsMax + 1)}));
  const CUDA_HOST_NODE_PARAMS direct = run_by_graph({count, argument(kKeptForGraphsMax + 1)});
  EXPECT_EQ(as_passed(direct).argument, argument(kKeptForGraphsMax + 1));
  for (std::uintptr_t of = 1; of <= kKeptForGraphsMax; ++of) {
    const CUDA_HOST_NODE_PARAMS ours = run_by_graph({count, argument(of)});
    dropped(ours);
    dropped(ours);
  }
  EXPECT_TRUE(is_kept({count, argument(kKeptForGraphsMax + 1)}));
}

}  // namespace
}  // namespace cistern::cuda
