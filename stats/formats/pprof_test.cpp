// Tests of pprof.hpp: a profile is taken apart by the field numbers of profile.proto.
#include "stats/formats/pprof.hpp"

#include <gtest/gtest.h>

#include "stats/formats/hand_made.hpp"
#include "stats/formats/protobuf_fields.hpp"

namespace cistern::formats {
namespace {

using Names = std::vector<std::string>;

// Field numbers are those of profile.proto.
struct Profile : Fields {
  explicit Profile(const std::string& bytes) : Fields(bytes) {}
  std::string string(Count index) const { return texts.at(6).at(index); }
  std::vector<Count> values(std::size_t sample) const { return message(2, sample).packed(2); }
  // The frames of a sample as `function:line`, innermost first.
  Names lines(std::size_t sample) const {
    Names names;
    for (const Count location : message(2, sample).packed(1)) {
      const Fields at = message(4, location - 1);
      for (const std::string& bytes : at.texts.at(4)) {
        const Fields line(bytes);
        names.push_back(string(message(5, line.number(1) - 1).number(2)) + ":" + std::to_string(line.number(2)));
      }
    }
    return names;
  }
};

TEST(Pprof, ASampleHasAllValuesAndItsKindOutermost) {
  HandMade made;
  Frame main = made.frame("main", "/usr/bin/app", 0x1234);
  main.line = 7;
  LiveRow& row = made.leak("device:0", "lost", 2, 20, made.stack({made.frame("make", "/usr/lib/a.so"), main}));
  row.api = "cudaMalloc";
  const Profile profile(pprof(made.run, Value::lost));
  EXPECT_EQ(profile.string(0), "");
  Names types;
  for (std::size_t i = 0; i < profile.texts.at(1).size(); ++i)
    types.push_back(profile.string(profile.message(1, i).number(1)) + " " +
                    profile.string(profile.message(1, i).number(2)));
  EXPECT_EQ(types, (Names{"inuse_objects count", "inuse_space bytes", "lost_objects count", "lost_space bytes",
                          "peak_objects count", "peak_space bytes", "host_space bytes", "device_space bytes",
                          "pinned_space bytes", "managed_space bytes", "opencl_space bytes", "other_space bytes"}));
  EXPECT_EQ(profile.string(profile.number(14)), "lost_space");
  EXPECT_EQ(profile.values(0), (std::vector<Count>{2, 20, 2, 20, 0, 0, 0, 20, 0, 0, 0, 0}));
  EXPECT_EQ(profile.lines(0), (Names{"make:0", "main:7", "device:0:0"}));
  std::map<std::string, std::string> labels;
  const Fields sample = profile.message(2);
  for (const std::string& bytes : sample.texts.at(3))
    labels[profile.string(Fields(bytes).number(1))] = profile.string(Fields(bytes).number(2));
  EXPECT_EQ(labels,
            (std::map<std::string, std::string>{{"kind", "device:0"}, {"class", "lost"}, {"call", "cudaMalloc"}}));
}

TEST(Pprof, TheProgramIsTheFirstMapping) {
  HandMade made;
  made.leak("host", "lost", 1, 1,
            made.stack({made.frame("f", "/usr/lib/a.so", 0x1000), made.frame("main", "/usr/bin/app", 0x10)}));
  const Profile profile(pprof(made.run, Value::live));
  const Fields program = profile.message(3, 0), library = profile.message(3, 1);
  EXPECT_EQ(profile.string(program.number(5)), "/usr/bin/app");
  EXPECT_EQ(profile.string(program.number(6)), "ab01");
  EXPECT_EQ(program.number(7), 1u);
  EXPECT_EQ(library.number(2), program.number(3));  // one ends where the next begins
  const Fields call = profile.message(4, 0);
  EXPECT_EQ(call.number(2), library.number(1));
  EXPECT_EQ(call.number(3), library.number(2) + 0x1000);
  EXPECT_LT(call.number(3), library.number(3));
}

TEST(Pprof, InlinedCallsAreOneLocation) {
  HandMade made;
  Frame inlined = made.frame("inner");
  inlined.inlined = true;
  made.leak("host", "lost", 1, 1, made.stack({inlined, made.frame("outer")}));
  const Profile profile(pprof(made.run, Value::live));
  EXPECT_EQ(profile.message(2).packed(1).size(), 2u);
  EXPECT_EQ(profile.lines(0), (Names{"inner:0", "outer:0", "host:0"}));
}

TEST(Pprof, HostileNumbersAndNamesAreNumbersAndTexts) {
  HandMade made;
  made.run.reports[0].cistern.wall_s = 1e300;
  made.leak("x", "lost", ~Count{0}, ~Count{0}, made.stack({made.frame("a\xff", "m", ~Count{0})}));
  const Profile profile(pprof(made.run, Value::live));
  EXPECT_EQ(profile.values(0)[1], ~Count{0} >> 1);
  EXPECT_EQ(profile.values(0)[11], ~Count{0} >> 1);
  EXPECT_EQ(profile.lines(0)[0], "a\xef\xbf\xbd:0");
  EXPECT_LT(profile.message(4, 0).number(3), profile.message(3).number(3));
}

TEST(Pprof, OfNothingHasNoSamples) {
  const Profile profile(pprof(kNoReports, Value::live));
  EXPECT_FALSE(profile.texts.contains(2));
  EXPECT_EQ(profile.texts.at(1).size(), 12u);
}

}  // namespace
}  // namespace cistern::formats
