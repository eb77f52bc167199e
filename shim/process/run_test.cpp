// Who launches others, and which libraries are Cistern.
#include "shim/process/run.hpp"

#include <gtest/gtest.h>

namespace cistern {
namespace {

TEST(Runs, LaunchersAreKnownByTheirNames) {
  for (const char* name : {"sh", "bash", "timeout", "env", "make", "xargs", "faketime", "mpirun.mpich"})
    EXPECT_TRUE(launcher_kind(name).launches) << name;
  for (const char* name : {"", "python3", "python3.11", "git", "shells", "make.py", "app"})
    EXPECT_FALSE(launcher_kind(name).launches) << name;
}

TEST(Runs, SomeLaunchersStartTheSameAgainAndAgain) {
  for (const char* name : {"make", "xargs", "ninja", "mpirun", "srun"})
    EXPECT_TRUE(launcher_kind(name).in_batches) << name;
  for (const char* name : {"sh", "timeout", "python3"}) EXPECT_FALSE(launcher_kind(name).in_batches) << name;
}

TEST(Runs, CisternIsFoundAmongOtherLibraries) {
  for (const char* list : {"/a/libcistern.so", "libcistern.so.1", "/b/libfaketime.so.1:/a/libcistern.so",
                           "/a/libcistern.so /b/libfakeroot.so", ":/a/libcistern.so:"})
    EXPECT_TRUE(lists_cistern(list)) << list;
  for (const char* list : {"", ":", "/a/libfakeroot.so", "/libcistern.so/other.so", "/a/liblibcistern.so"})
    EXPECT_FALSE(lists_cistern(list)) << list;
}

}  // namespace
}  // namespace cistern
