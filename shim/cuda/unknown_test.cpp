// Known functions of the driver, and how many unknown ones are kept.
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

// A version is 1000 times the major one and 10 times the minor one.
TEST(UnknownFunctions, EachIsKeptOnceAndNotTooMany) {
  constexpr int kNames = 100, kWithVersion = 2;
  for (const int version : {12080, 13050}) note_answered("cuMemAlloc", version);
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < kNames; ++i) note_answered(("cuInvented" + std::to_string(i)).c_str(), 0);
  note_answered("cuMemAlloc", 0);
  Snapshot snapshot;
  add_unknown_functions(snapshot);
  const UnknownFunctions& unknown = snapshot.unknown_functions;
  ASSERT_EQ(32U, unknown.names.size());
  EXPECT_EQ("cuMemAlloc of CUDA 12.8", unknown.names[0]);
  EXPECT_EQ("cuMemAlloc of CUDA 13.5", unknown.names[1]);
  EXPECT_EQ("cuInvented0", unknown.names[kWithVersion]);
  EXPECT_EQ("cuInvented29", unknown.names.back());
  EXPECT_EQ(2U * (kNames + kWithVersion - 32), unknown.others);
}

}  // namespace
}  // namespace cistern::cuda
