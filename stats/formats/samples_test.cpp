// Tests of samples.hpp: which samples a run has, their stacks, and their texts.
#include "stats/formats/samples.hpp"

#include <gtest/gtest.h>

#include "stats/formats/hand_made.hpp"

namespace cistern::formats {
namespace {

std::vector<std::string> names_of(const Samples& samples, const Sample& sample) {
  std::vector<std::string> names;
  for (const FrameId id : sample.stack) names.push_back(samples.frames[id].function);
  return names;
}

using Names = std::vector<std::string>;

TEST(Samples, TheKindIsOutermost) {
  HandMade made;
  made.leak("device:0", "lost", 2, 20, made.stack({made.frame("make"), made.frame("main")}));
  const Samples samples = samples_of(made.run);
  ASSERT_EQ(samples.list.size(), 1u);
  EXPECT_EQ(names_of(samples, samples.list[0]), (Names{"make", "main", "device:0"}));
  EXPECT_EQ(samples.list[0].site_frames, 2u);
  EXPECT_EQ(samples.list[0].live.bytes, 20u);
  EXPECT_EQ(samples.list[0].lost.blocks, 2u);
}

TEST(Samples, OfSeveralProcessesEachHasItsName) {
  HandMade made;
  made.leak("host", "reachable", 1, 8, made.stack({made.frame("main")}));
  made.add_process(7).cistern.rank = 3;
  made.leak("host", "reachable", 1, 8, made.stack({made.frame("main")}));
  const Samples samples = samples_of(made.run);
  ASSERT_EQ(samples.list.size(), 2u);
  EXPECT_EQ(names_of(samples, samples.list[0]), (Names{"main", "host", "app (pid 1)"}));
  EXPECT_EQ(names_of(samples, samples.list[1]), (Names{"main", "host", "rank 3: app (pid 7)"}));
}

TEST(Samples, MemoryWithoutACallSiteIsThere) {
  HandMade made;
  made.leak("pinned", "never freed", 1, 5, 0);
  made.run.reports[0].host_without_site = {.blocks = 4, .bytes = 40};
  const Samples samples = samples_of(made.run);
  ASSERT_EQ(samples.list.size(), 2u);
  EXPECT_EQ(names_of(samples, samples.list[0]), (Names{"(no call site)", "pinned"}));
  EXPECT_EQ(names_of(samples, samples.list[1]), (Names{"(no call site)", "host"}));
  EXPECT_EQ(samples.list[1].live.blocks, 4u);
}

TEST(Samples, ThePeakIsThatOfAllSites) {
  HandMade made;
  Report& report = made.run.reports[0];
  made.at_peak("device:0", 1, 60, made.stack({made.frame("main")}));
  made.at_peak("host", 1, 7, made.stack({made.frame("main")}));
  report.kinds.emplace_back("device:0", Kind()).second.peak_bytes = 100;
  report.kinds.emplace_back("host", Kind()).second.peak_bytes = 1000;
  report.estimated = {"kinds.host.peak_bytes"};
  const Samples samples = samples_of(made.run);
  ASSERT_EQ(samples.list.size(), 3u);
  EXPECT_EQ(samples.list[0].peak.bytes, 60u);
  EXPECT_EQ(samples.list[1].peak.bytes, 7u);
  EXPECT_EQ(names_of(samples, samples.list[2]), (Names{"(other call sites)", "device:0"}));
  EXPECT_EQ(samples.list[2].peak.bytes, 40u);
}

TEST(Samples, LostIsWhatTheVerdictCallsSo) {
  HandMade made;
  const StackId stack = made.stack({made.frame("main")});
  for (const char* kind : {"host", "device:0"})
    for (const char* leak_class : {"lost", "indirectly lost", "possibly lost", "reachable", "held only by the driver"})
      made.leak(kind, leak_class, 1, 1, stack);
  made.leak("device:0", "lost", 1, 1, stack).suppressed = true;
  std::string lost;
  for (const Sample& sample : samples_of(made.run).list) lost += sample.lost.bytes ? '1' : '0';
  EXPECT_EQ(lost,
            "11000"
            "11001"
            "0");
}

TEST(Samples, FramesHaveTheNamesOfTheTextReport) {
  HandMade made;
  Frame generated, script;
  generated.address = 0x7f00;
  script.file = "a.py";
  const Samples samples = [&] {
    made.stack({made.frame("", "/usr/lib/libfoo.so", 0x1a2b), generated, script, made.frame("a\nb\xff")});
    return samples_of(made.run);
  }();
  EXPECT_EQ(samples.frames[0].function, "libfoo.so+0x1a2b");
  EXPECT_EQ(samples.frames[1].function, "0x7f00 (generated code)");
  EXPECT_EQ(samples.frames[2].function, "?");
  EXPECT_EQ(samples.frames[3].function, "a b\xef\xbf\xbd");
}

TEST(Samples, APlaceIsACallWithThoseThatAreInlinedInIt) {
  HandMade made;
  Frame inlined = made.frame("inner");
  inlined.inlined = true;
  Frame cut = made.frame("cut", "/usr/bin/app", 99);
  cut.inlined = true;
  made.leak("host", "lost", 1, 1, made.stack({inlined, made.frame("outer"), made.frame("main"), cut}));
  const Samples samples = samples_of(made.run);
  std::string places;
  samples.visit_places(samples.list[0], [&](std::span<const FrameId> place) {
    for (const FrameId id : place) places += samples.frames[id].function + " ";
    places += "| ";
  });
  EXPECT_EQ(places, "inner outer | main | cut | host | ");
}

TEST(Samples, TextsAreUtf8WithoutControlCharacters) {
  using namespace std::string_literals;
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"), "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("a\0b\nc\x7f"s), "a b c ");
  // Cut off, overlong, a surrogate, above U+10FFFF, a lone continuation.
  for (const char* bad : {"\xc3", "\xc0", "\xf5", "\x80", "\xff"}) EXPECT_EQ(printable(bad), "\xef\xbf\xbd") << bad;
  for (const char* bad : {"\xe0\x80", "\xed\xa0", "\xf4\x90", "\xf0\x80"})
    EXPECT_EQ(printable(bad), "\xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace cistern::formats
