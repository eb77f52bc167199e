// What is known of the driver's functions, and how much is kept of those that are not.
#include "shim/cuda/unknown.hpp"

#include <gtest/gtest.h>

namespace cistern::cuda {
namespace {

TEST(UnknownFunctions, RowsAndNamesWithoutOneAreKnown) {
  for (const char* name : {"cuMemAlloc", "cuMemAlloc_v2", "cuMemcpyHtoD_v2_ptds", "cuTexObjectCreate",
                           "cuDeviceGetName", "cuStreamGetCaptureInfo_v2", "cuProfilerStart"})
    EXPECT_TRUE(is_known_function(name)) << name;
  for (const char* name : {"", "cu", "cuMemAllo", "cuMemAlloc_v9", "cuMemInvent", "cudaMalloc"})
    EXPECT_FALSE(is_known_function(name)) << name;
}

TEST(UnknownFunctions, EachIsKeptOnceAndNotTooMany) {
  constexpr int kNames = 100;
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < kNames; ++i) note_answered(("cuInvented" + std::to_string(i)).c_str(), 0);
  note_answered("cuMemAlloc", 0);
  Snapshot snapshot;
  add_unknown_functions(snapshot);
  const UnknownFunctions& unknown = snapshot.unknown_functions;
  ASSERT_EQ(32U, unknown.names.size());
  EXPECT_EQ("cuInvented0", unknown.names.front());
  EXPECT_EQ("cuInvented31", unknown.names.back());
  EXPECT_EQ(2U * (kNames - 32), unknown.others);
}

}  // namespace
}  // namespace cistern::cuda
