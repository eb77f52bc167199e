// Names of files that lie beside others.
#include "shim/process/file_names.hpp"

#include <gtest/gtest.h>

namespace cistern {
namespace {

TEST(FileNames, ThePidGoesBeforeTheExtension) {
  EXPECT_EQ(path_with_pid("/a/run.json", 12, 1), "/a/run.12.json");
  EXPECT_EQ(path_with_pid("/a/run.json", 12, 2), "/a/run.12-2.json");
  EXPECT_EQ(path_with_pid("/a.b/run", 12, 1), "/a.b/run.12");
  EXPECT_EQ(path_with_pid("/a/.hidden", 12, 1), "/a/.hidden.12");
  EXPECT_EQ(path_with_pid("run", 12, 1), "run.12");
  EXPECT_EQ(path_with_pid("run.tar.gz", 12, 3), "run.tar.12-3.gz");
}

TEST(FileNames, ThoseOfEarlierRunsAreCalledOld) {
  EXPECT_EQ(path_of_earlier("/a/run.json", 12, 1), "/a/run.12.old.json");
  EXPECT_EQ(path_of_earlier("/a.b/run", 12, 2), "/a.b/run.12-2.old");
}

}  // namespace
}  // namespace cistern
