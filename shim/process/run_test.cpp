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

TEST(Runs, AShellWithoutAScriptReadsCommands) {
  using namespace std::string_view_literals;
  for (const auto arguments : {"-bash\0"sv, "bash\0"sv, "bash\0--login\0-i\0"sv, ""sv})
    EXPECT_TRUE(reads_commands("bash", arguments)) << arguments;
  for (const auto arguments : {"sh\0-c\0date\0"sv, "sh\0-ec\0date\0"sv, "sh\0script\0"sv, "sh\0-e\0script\0"sv})
    EXPECT_FALSE(reads_commands("dash", arguments)) << arguments;
  EXPECT_FALSE(reads_commands("python3", "python3\0"sv));
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
