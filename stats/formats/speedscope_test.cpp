// Tests of speedscope.hpp: the profiles of a file, and texts that JSON must quote.
#include "stats/formats/speedscope.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "stats/formats/hand_made.hpp"

namespace cistern::formats {
namespace {

using nlohmann::json;

TEST(Speedscope, HasAProfileForEachValue) {
  HandMade made;
  Frame main = made.frame("main");
  main.file = "a.cpp", main.line = 3;
  made.leak("device:0", "lost", 2, 20, made.stack({made.frame("make"), main}));
  const json file = json::parse(speedscope(made.run, Value::lost));
  const json& frames = file["shared"]["frames"];
  ASSERT_EQ(file["profiles"].size(), 4u);
  const json& lost = file["profiles"][file["activeProfileIndex"].get<int>()];
  EXPECT_EQ(lost["name"], "lost, bytes");
  EXPECT_EQ(lost["unit"], "bytes");
  EXPECT_EQ(lost["weights"], json({20}));
  EXPECT_EQ(lost["endValue"], 20);
  ASSERT_EQ(lost["samples"][0].size(), 3u);
  EXPECT_EQ(frames[lost["samples"][0][0].get<int>()]["name"], "device:0");
  EXPECT_EQ(frames[lost["samples"][0][1].get<int>()], json({{"name", "main"}, {"file", "a.cpp"}, {"line", 3}}));
  EXPECT_EQ(frames[lost["samples"][0][2].get<int>()], json({{"name", "make"}, {"file", "/usr/bin/app"}}));
  EXPECT_EQ(file["profiles"][2]["name"], "live at the end, blocks");
  EXPECT_EQ(file["profiles"][2]["weights"], json({2}));
}

TEST(Speedscope, WhatIsShownFirstIsThereEvenIfItIsEmpty) {
  const json file = json::parse(speedscope(kNoReports, Value::peak));
  ASSERT_EQ(file["profiles"].size(), 1u);
  EXPECT_EQ(file["profiles"][0]["name"], "at the peak, bytes");
  EXPECT_EQ(file["profiles"][0]["samples"], json::array());
}

TEST(Speedscope, NamesAreTextsOfJson) {
  HandMade made;
  made.leak("host", "lost", 1, 3, made.stack({made.frame("a\"\n\xff")}));
  const json file = json::parse(speedscope(made.run, Value::live));
  EXPECT_EQ(file["shared"]["frames"][0]["name"], "a\" \xef\xbf\xbd");
}

}  // namespace
}  // namespace cistern::formats
