// Tests of folded.hpp: which lines stand for which rows, and names that could end a line or a frame.
#include "stats/formats/folded.hpp"

#include <gtest/gtest.h>

#include "stats/formats/hand_made.hpp"

namespace cistern::formats {
namespace {

TEST(Folded, EachStackIsALineOnce) {
  HandMade made;
  const StackId stack = made.stack({made.frame("make"), made.frame("main")});
  made.leak("device:0", "lost", 1, 20, stack);
  made.leak("device:0", "reachable", 1, 5, stack);
  made.leak("host", "reachable", 1, 0, stack);
  EXPECT_EQ(folded(made.run, Value::live), "device:0;main;make 25\n");
  EXPECT_EQ(folded(made.run, Value::lost), "device:0;main;make 20\n");
  EXPECT_EQ(folded(made.run, Value::peak), "");
}

TEST(Folded, NamesDoNotEndALineOrAFrame) {
  using namespace std::string_literals;
  HandMade made;
  Frame hostile = made.frame("");
  hostile.function = "a;b\nc\0d\xff"s;
  made.leak("host;x", "lost", 1, 3, made.stack({hostile}));
  EXPECT_EQ(folded(made.run, Value::live), "host:x;a:b c d\xef\xbf\xbd 3\n");
}

TEST(Folded, OfNothingIsEmpty) { EXPECT_EQ(folded(kNoReports, Value::live), ""); }

}  // namespace
}  // namespace cistern::formats
