// Programs that launch others, and libraries that are Cistern.
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
  for (const auto arguments :
       {"-bash\0"sv, "bash\0"sv, "bash\0--login\0-i\0"sv, "bash\0--rcfile\0file\0"sv, "bash\0--init-file\0file\0-i\0"sv,
        "bash\0-o\0vi\0"sv, "bash\0-eo\0pipefail\0"sv, "bash\0-O\0extglob\0"sv, "bash\0+o\0vi\0+x\0"sv, ""sv})
    EXPECT_TRUE(begins_runs("bash", arguments)) << arguments;
  for (const auto arguments :
       {"sh\0-c\0date\0"sv, "sh\0-ec\0date\0"sv, "sh\0script\0"sv, "sh\0-e\0script\0"sv, "sh\0-o\0pipefail\0script\0"sv,
        "bash\0--rcfile\0file\0script\0"sv, "bash\0-eo\0pipefail\0-c\0date\0"sv, "bash\0--posix\0script\0"sv})
    EXPECT_FALSE(begins_runs("dash", arguments)) << arguments;
  EXPECT_FALSE(begins_runs("python3", "python3\0"sv));
}

TEST(Runs, WhatStartsACommandAnewBeginsARunEachTime) {
  using namespace std::string_view_literals;
  for (const auto program : {"entr", "watch", "hyperfine"}) {
    EXPECT_TRUE(begins_runs(program, "entr\0./app\0"sv)) << program;
    EXPECT_FALSE(launcher_kind(program).in_batches) << program;
  }
  EXPECT_FALSE(begins_runs("make", "make\0"sv));
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
