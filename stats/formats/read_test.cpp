// Reports that are read, and what is refused.
#include "stats/formats/read.hpp"

#include <gtest/gtest.h>

namespace cistern::formats {
namespace {

constexpr char kReport[] = R"({
 "cistern": {"version": "0.1.0", "schema": 4, "pid": 7, "gpu_memory_used": true, "command": "./app", "wall_s": 1.5,
             "moment": "exit"},
 "kinds": {"host": {"live_bytes": 10, "unpooled": {"too large": 3}}, "device:0": {"live_bytes": 20}},
 "leaks": [
  {"kind": "device:0", "class": "lost", "blocks": 2, "bytes": 20, "frames": [
    {"function": "make", "file": "a.cpp", "line": 3, "module": "/app", "offset": 16}, {"address": 5}]},
  {"kind": "host", "class": "reachable", "blocks": 1, "bytes": 10, "frames": [
    {"function": "make", "file": "a.cpp", "line": 3, "module": "/app", "offset": 16}, {"address": 5}]}]})";

std::string refusal_of(std::string_view text) {
  RunReader reader;
  try {
    reader.add(text);
  } catch (const BadReport& bad) {
    EXPECT_TRUE(reader.run().reports.empty());
    return bad.what();
  }
  return "";
}

std::string with(std::string_view what, std::string_view instead) {
  std::string text = kReport;
  return text.replace(text.find(what), what.size(), instead);
}

TEST(ReadReport, EachStackIsThereOnce) {
  RunReader reader;
  reader.add(kReport);
  const auto& run = reader.run();
  ASSERT_EQ(run.reports.size(), 1u);
  const Report& report = run.reports[0];
  EXPECT_EQ(report.cistern.command, "./app");
  EXPECT_EQ(report.cistern.rank, std::nullopt);
  ASSERT_EQ(report.kinds.size(), 2u);
  EXPECT_EQ(report.kinds[0].first, "host");
  EXPECT_EQ(report.kinds[0].second.unpooled[0].second, 3u);
  ASSERT_EQ(report.leaks.size(), 2u);
  EXPECT_EQ(report.leaks[0].leak_class, "lost");
  EXPECT_EQ(report.leaks[0].frames, report.leaks[1].frames);
  ASSERT_EQ(run.stacks.size(), 2u);
  const Stack& stack = run.stacks[report.leaks[0].frames];
  ASSERT_EQ(stack.size(), 2u);
  EXPECT_EQ(run.frames[stack[0]].function, "make");
  EXPECT_EQ(run.frames[stack[1]].address, 5u);
}

TEST(ReadReport, WhatIsNoReportIsRefusedInWords) {
  EXPECT_EQ(refusal_of(""), "is empty");
  EXPECT_EQ(refusal_of("VERDICT  nothing lost"), "is no JSON report");
  EXPECT_EQ(refusal_of("[]"), "is JSON, but no report of Cistern");
  EXPECT_EQ(refusal_of("{}"), "is JSON, but no report of Cistern");
  EXPECT_EQ(refusal_of(R"({"cistern": {"schema": -1}})"), "is JSON, but no report of Cistern");
  EXPECT_EQ(refusal_of(with("\"schema\": 4", "\"schema\": 5")), "is from a newer Cistern (schema 5, this one reads 4)");
  EXPECT_EQ(refusal_of(with("\"schema\": 4", "\"schema\": 3")),
            "is from an older Cistern (schema 3, this one reads 4)");
  EXPECT_EQ(refusal_of(with("\"bytes\": 20", "\"bytes\": -20")), "is no report of Cistern: 'bytes' is no count");
  EXPECT_EQ(refusal_of(with("\"bytes\": 20", "\"bytes\": 1e99")), "is no report of Cistern: 'bytes' is no count");
  EXPECT_EQ(refusal_of(with("\"lost\"", "7")), "is no report of Cistern: 'class' is no text");
  EXPECT_EQ(refusal_of(with("{\"address\": 5}", "5")), "is no report of Cistern: 'frames' is no object");
  EXPECT_EQ(refusal_of(with("1.5", "\"long\"")), "is no report of Cistern: 'wall_s' is no number");
  EXPECT_EQ(refusal_of(with("{\"too large\": 3}", "[]")), "is no report of Cistern: 'unpooled' is no object");
}

TEST(ReadReport, EveryBeginningOfAReportIsRefused) {
  const std::string_view whole = kReport;
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) EXPECT_NE(refusal_of(whole.substr(0, bytes)), "") << bytes;
  EXPECT_EQ(refusal_of(std::string(100'000, '[')), "is no JSON report");
  EXPECT_EQ(refusal_of("{\"a\":" + std::string(100'000, '[')), "is damaged or cut off: its JSON does not end");
}

}  // namespace
}  // namespace cistern::formats
