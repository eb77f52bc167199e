// Tests of heaptrack.hpp: whole recordings, line by line, and runs that the format cannot hold.
#include "stats/formats/heaptrack.hpp"

#include <gtest/gtest.h>

#include "stats/formats/hand_made.hpp"

namespace cistern::formats {
namespace {

TEST(Heaptrack, EachBlockIsALine) {
  HandMade made;
  Frame main = made.frame("main");
  main.file = "a.cpp", main.line = 10;
  made.leak("device:0", "lost", 3, 20, made.stack({made.frame("make", "/usr/lib/a.so", 0x1f), main}));
  // 20 bytes in 3 blocks: 6, 7 and 7. The first of a size lies at first_s, the others at last_s.
  EXPECT_EQ(heaptrack(made.run, Value::live),
            "v 10400 3\nX /usr/bin/app --fast\nI 1000 0\n"
            "s d /usr/lib/a.so\ns 4 make\ni 1f 1 2 0 0\n"
            "s c /usr/bin/app\ns 4 main\ns 5 a.cpp\ni 10 3 4 5 a\n"
            "s 8 device:0\ni 0 0 6 0 0\n"
            "t 2 0\nt 1 1\nt 3 2\n"
            "a 6 3\na 7 3\n"
            "c 1f4\n+ 0\n+ 1\nc 5dc\n+ 1\n");
}

TEST(Heaptrack, NamesDoNotEndALine) {
  HandMade made;
  made.run.reports[0].cistern.command = "a\nb";
  made.leak("host", "lost", 1, 1, made.stack({made.frame("x\ny")}));
  const std::string text = heaptrack(made.run, Value::lost);
  EXPECT_NE(text.find("X a b\n"), text.npos);
  EXPECT_NE(text.find("s 3 x y\n"), text.npos);
}

TEST(Heaptrack, BytesWithoutBlocksAreOneBlock) {
  HandMade made;
  made.run.reports[0].kinds.emplace_back("device:0", Kind()).second.peak_bytes = 100;
  const std::string text = heaptrack(made.run, Value::peak);
  EXPECT_NE(text.find("a 64 2\nc 7d0\n+ 0\n"), text.npos) << text;
}

TEST(Heaptrack, TooManyBlocksAreRefused) {
  HandMade made;
  made.leak("host", "lost", kHeaptrackBlocksMax, kHeaptrackBlocksMax, 0);
  made.leak("host", "lost", 1, 1, 0);
  EXPECT_THROW(heaptrack(made.run, Value::live), TooManyBlocks);
  made.run.reports[0].leaks[0].blocks = ~Count{0};
  EXPECT_THROW(heaptrack(made.run, Value::live), TooManyBlocks);
}

TEST(Heaptrack, OfNothingIsItsHead) { EXPECT_EQ(heaptrack(kNoReports, Value::live), "v 10400 3\nX \nI 1000 0\n"); }

}  // namespace
}  // namespace cistern::formats
