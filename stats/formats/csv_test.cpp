// Tests of csv.hpp: the lines of a table, and texts that its format must quote.
#include "stats/formats/csv.hpp"

#include <gtest/gtest.h>

#include "stats/formats/hand_made.hpp"

namespace cistern::formats {
namespace {

constexpr char kHead[] =
    "program,pid,rank,start_unix_s,kind,class,object,call,owner,suppressed,live_blocks,live_bytes,lost_blocks,"
    "lost_bytes,peak_blocks,peak_bytes,first_s,last_s,file,line,stack\n";

TEST(Csv, EachSampleIsALine) {
  HandMade made;
  made.run.reports[0].cistern.rank = 3, made.run.reports[0].cistern.start_unix_s = 1795796400.25;
  Frame make = made.frame("make");
  make.file = "a.cpp", make.line = 7;
  const StackId stack = made.stack({make, made.frame("main")});
  LiveRow& row = made.leak("device:0", "lost", 2, 20, stack);
  row.object = "block", row.api = "cudaMalloc", row.owner = "app";
  made.at_peak("device:0", 4, 40, stack);
  EXPECT_EQ(csv(made.run),
            kHead + std::string("app,1,3,1795796400.250000,device:0,lost,block,cudaMalloc,app,0,2,20,2,20,0,0,0.500000,"
                                "1.500000,a.cpp,7,main;make\n"
                                "app,1,3,1795796400.250000,device:0,,,,,0,0,0,0,0,4,40,,,a.cpp,7,main;make\n"));
}

TEST(Csv, TextsDoNotEndAColumnOrALine) {
  HandMade made;
  made.leak("host", "lost", 1, 1, made.stack({made.frame("f(int, \"a\nb;\xff\")")})).owner = ",";
  const std::string text = csv(made.run);
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
  EXPECT_NE(text.find(",lost,,,\",\",0,"), text.npos);
  EXPECT_NE(text.find(",\"f(int, \"\"a b:\xef\xbf\xbd\"\")\"\n"), text.npos) << text;
}

TEST(Csv, OfNothingIsItsHead) { EXPECT_EQ(csv(kNoReports), kHead); }

}  // namespace
}  // namespace cistern::formats
