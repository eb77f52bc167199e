// Patterns as LeakSanitizer's are matched, files of rules, and what the built-in list takes for granted.
#include "stats/suppressions.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stats/listed_rows.hpp"
#include "stats/sites.hpp"

namespace cistern {
namespace {

TEST(SuppressionPattern, IsFoundAnywhere) {
  EXPECT_TRUE(pattern_matches("load", "load_weights"));
  EXPECT_TRUE(pattern_matches("weights", "load_weights"));
  EXPECT_TRUE(pattern_matches("d_w", "load_weights"));
  EXPECT_FALSE(pattern_matches("Load", "load_weights"));
  EXPECT_FALSE(pattern_matches("load_weights_", "load_weights"));
  EXPECT_FALSE(pattern_matches("", ""));
  EXPECT_FALSE(pattern_matches("*", ""));
}

TEST(SuppressionPattern, Anchors) {
  EXPECT_TRUE(pattern_matches("^load", "load_weights"));
  EXPECT_FALSE(pattern_matches("^weights", "load_weights"));
  EXPECT_TRUE(pattern_matches("weights$", "load_weights"));
  EXPECT_FALSE(pattern_matches("load$", "load_weights"));
  EXPECT_TRUE(pattern_matches("^load_weights$", "load_weights"));
  EXPECT_FALSE(pattern_matches("^load_weights$", "load_weights2"));
  EXPECT_FALSE(pattern_matches("^load_weights$", "reload_weights"));
  EXPECT_TRUE(pattern_matches("ab$", "abab"));
}

TEST(SuppressionPattern, Stars) {
  EXPECT_TRUE(pattern_matches("l*w", "load_weights"));
  EXPECT_TRUE(pattern_matches("^l*d*s$", "load_weights"));
  EXPECT_TRUE(pattern_matches("*", "x"));
  EXPECT_TRUE(pattern_matches("^*$", "x"));
  EXPECT_TRUE(pattern_matches("^a*a$", "aa"));
  EXPECT_FALSE(pattern_matches("^a*a$", "a"));
  EXPECT_TRUE(pattern_matches("a**b", "ab"));
  EXPECT_FALSE(pattern_matches("w*l*z", "load_weights"));
  EXPECT_FALSE(pattern_matches("^w*s", "load_weights"));
}

void apply(const Suppressions& suppressions, Snapshot& snapshot) {
  suppressions.mark(snapshot);
  merge_alike(snapshot);
  count_suppressed(snapshot);
}

Suppressions rules(std::string_view file) {
  Suppressions suppressions;
  suppressions.read(file);
  return suppressions;
}

TEST(SuppressionFile, RulesCommentsAndWhatIsNeither) {
  Snapshot snapshot{};
  const Suppressions read = rules("# leak:no\n\n \tleak: a b \r\nleak:\nrace:x\nleak:c");
  apply(read, snapshot);
  ASSERT_EQ(snapshot.suppressions.size(), 2u);
  EXPECT_EQ(snapshot.suppressions[0].rule, "leak:a b");
  EXPECT_EQ(snapshot.suppressions[1].rule, "leak:c");
  EXPECT_FALSE(snapshot.suppressions[1].built_in);
  EXPECT_EQ(read.lines_that_are_no_rule(), (Vector<unsigned>{4, 5}));
}

TEST(SuppressionFile, PatternsOfAnythingAreToldApart) {
  const Suppressions read = rules("leak:*\nleak:load*\nleak:^*$\nleak:**\nleak:^\nleak:main");
  EXPECT_EQ(read.patterns_of_anything(), (Vector<String>{"*", "^*$", "**", "^"}));
}

FrameFigures frame_of(const char* module, const char* function, const char* file = "") {
  FrameFigures frame{};
  frame.module = module;
  frame.function = function;
  frame.file = file;
  return frame;
}

LeakFigures made_by(const char* module, const char* function, const char* caller_module = "/app") {
  LeakFigures leak = leak_at(0, "host", "block", "malloc");
  leak.blocks = 2;
  leak.bytes = 100;
  leak.frames.push_back(frame_of(module, function));
  leak.frames.push_back(frame_of(caller_module, "caller", "src/caller.cpp"));
  return leak;
}

bool is_suppressed(LeakFigures leak, std::string_view file = "") {
  Snapshot snapshot{};
  snapshot.leaks.push_back(std::move(leak));
  apply(rules(file), snapshot);
  return snapshot.leaks[0].suppressed;
}

TEST(Suppressions, ByFunctionModuleAndFileOfAnyFrame) {
  EXPECT_TRUE(is_suppressed(made_by("/lib/libx.so", "f"), "leak:libx"));
  EXPECT_TRUE(is_suppressed(made_by("/lib/libx.so", "f"), "leak:^caller$"));
  EXPECT_TRUE(is_suppressed(made_by("/app", "f", "/lib/liby.so.3"), "leak:liby.so"));
  EXPECT_TRUE(is_suppressed(made_by("/lib/libx.so", "f"), "leak:src/caller.c"));
  EXPECT_FALSE(is_suppressed(made_by("/lib/libx.so", "f"), "leak:libz"));
  EXPECT_FALSE(is_suppressed(made_by("/lib/libx.so", "f")));
}

TEST(Suppressions, TheFirstRuleThatNamesALeakCountsIt) {
  Snapshot snapshot{};
  snapshot.leaks.push_back(made_by("/app", "f"));
  snapshot.leaks.push_back(made_by("/app", "g"));
  snapshot.host_sites.push_back(made_by("/app", "f"));
  apply(rules("leak:^f$\nleak:/app\nleak:never"), snapshot);
  ASSERT_EQ(snapshot.suppressions.size(), 3u);
  EXPECT_EQ(snapshot.suppressions[0].sites, 2u);
  EXPECT_EQ(snapshot.suppressions[0].blocks, 4u);
  EXPECT_EQ(snapshot.suppressions[0].bytes, 200u);
  EXPECT_EQ(snapshot.suppressions[1].sites, 1u);
  EXPECT_EQ(snapshot.suppressions[2].sites, 0u);
}

// Native code below Python is folded: the two rows look alike, and only one of them is known.
TEST(Suppressions, ByAFrameThatIsNotShownLeaveTheOthersOfItsLine) {
  Snapshot snapshot{};
  for (const char* function : {"known", "new"}) {
    LeakFigures leak = made_by("/lib/libx.so", function);
    leak.frames[0].folded = true;
    snapshot.leaks.push_back(std::move(leak));
  }
  snapshot.leaks.push_back(snapshot.leaks.front());
  apply(rules("leak:^known$"), snapshot);
  ASSERT_EQ(snapshot.leaks.size(), 2u);
  const auto &first = snapshot.leaks[0], &second = snapshot.leaks[1];
  EXPECT_EQ(first.blocks, first.suppressed ? 4u : 2u);
  EXPECT_NE(first.suppressed, second.suppressed);
  EXPECT_EQ(snapshot.suppressions[0].sites, 1u);
  EXPECT_EQ(snapshot.suppressions[0].blocks, 4u);
}

TEST(Suppressions, WhatDriversMakeForThemselves) {
  EXPECT_TRUE(is_suppressed(made_by("/usr/lib/libpocl.so.2", "")));
  EXPECT_TRUE(is_suppressed(made_by("/usr/lib/libc.so.6", "strdup", "/usr/lib/libcuda.so.1")));
  EXPECT_TRUE(is_suppressed(made_by("/usr/bin/python3", "PyUnicode_InternInPlace")));
}

// A callback of the program's that a driver called, and a library with a like name.
TEST(Suppressions, NotWhatTheyAreOnTheStackOf) {
  EXPECT_FALSE(is_suppressed(made_by("/app", "on_event", "/usr/lib/libpocl.so.2")));
  EXPECT_FALSE(is_suppressed(made_by("/usr/lib/libcudart.so.13", "f")));
  EXPECT_FALSE(is_suppressed(made_by("/usr/lib/libopencv_core.so.406", "cv::UMat::create")));
  EXPECT_TRUE(is_suppressed(made_by("/usr/lib/libopencv_core.so.406", "cv::ocl::OpenCLBufferPoolImpl::allocate")));
}

}  // namespace
}  // namespace cistern
