// Tests of perfetto.hpp: a trace is taken apart by the field numbers of Perfetto's own description.
#include "stats/formats/perfetto.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "stats/formats/hand_made.hpp"
#include "stats/formats/protobuf_fields.hpp"

namespace cistern::formats {
namespace {

// Field numbers are those of perfetto_trace.proto.
struct Dump {
  std::string heap;
  Count pid, time;
  std::vector<Amount> samples;
  std::vector<Amount> freed;
};

struct Trace {
  std::map<Count, std::string> processes;                                // by pid
  std::map<std::string, std::vector<std::pair<Count, Count>>> counters;  // time, value
  std::vector<std::pair<Count, std::string>> failed;                     // time, name
  std::vector<Dump> dumps;
  std::vector<std::string> callstacks;  // outermost first

  explicit Trace(const Run& run) {
    std::map<Count, std::string> tracks;
    const Fields packets(perfetto(run));
    for (const std::string& bytes : packets.texts.at(1)) {
      const Fields packet(bytes);
      EXPECT_EQ(packet.number(10), 1u);
      if (packet.texts.contains(60)) {
        const Fields track = packet.message(60);
        if (track.texts.contains(3)) processes[track.message(3).number(1)] = track.message(3).text(6);
        if (track.texts.contains(2)) tracks[track.number(1)] = track.text(2);
      }
      if (packet.texts.contains(11)) {
        const Fields event = packet.message(11);
        if (event.number(9) == 3) {
          EXPECT_EQ(tracks.at(event.number(11)), "failed requests");
          failed.emplace_back(packet.number(8), event.text(23));
          continue;
        }
        counters[tracks.at(event.number(11))].emplace_back(packet.number(8), event.number(30));
      }
      if (packet.texts.contains(12)) read_callstacks(packet.message(12));
      if (packet.texts.contains(37)) read_dump(packet.message(37));
    }
  }

 private:
  void read_callstacks(const Fields& interned) {
    std::map<Count, std::string> names, frames;
    const auto list = [&](int field) -> const std::vector<std::string>& {
      return interned.texts.contains(field) ? interned.texts.at(field) : none_;
    };
    for (const std::string& bytes : list(5)) names[Fields(bytes).number(1)] = Fields(bytes).text(2);
    for (const std::string& bytes : list(6)) frames[Fields(bytes).number(1)] = names.at(Fields(bytes).number(2));
    for (const std::string& bytes : list(7)) {
      std::string& stack = callstacks.emplace_back();
      const Fields callstack(bytes);
      for (const Count id : callstack.numbers.at(2)) stack += frames.at(id) + " ";
    }
  }
  void read_dump(const Fields& profile) {
    EXPECT_EQ(profile.number(7), dumps.size());
    const Fields heap = profile.message(5);
    Dump& dump = dumps.emplace_back(Dump{heap.text(11), heap.number(1), heap.number(9), {}, {}});
    for (const std::string& bytes : heap.texts.at(2)) {
      const Fields sample(bytes);
      const auto or_0 = [&](int field) { return sample.numbers.contains(field) ? sample.number(field) : 0; };
      dump.samples.push_back({.blocks = sample.number(5), .bytes = sample.number(2)});
      dump.freed.push_back({.blocks = or_0(6), .bytes = or_0(3)});
    }
  }
  const std::vector<std::string> none_;
};

TEST(Perfetto, EachKindIsACounterOverTime) {
  HandMade made;
  Kind& kind = made.run.reports[0].kinds.emplace_back("device:0", Kind()).second;
  kind.live_bytes = 30, kind.peak_bytes = 99, kind.peak_at_s = 0.7;
  kind.live_over_time = {.start_s = 0, .interval_s = 0.5, .least = {0, 10}, .last = {10, 20}};
  const auto counters = Trace(made.run).counters;
  constexpr Count kMilliseconds = 1'000'000;
  EXPECT_EQ(counters.at("device:0 live"), (std::vector<std::pair<Count, Count>>{{0, 0},
                                                                                {500 * kMilliseconds, 10},
                                                                                {700 * kMilliseconds, 99},
                                                                                {1000 * kMilliseconds, 20},
                                                                                {2000 * kMilliseconds, 30}}));
}

TEST(Perfetto, EachHeapIsDumpedOnceAndHasEachStackOnce) {
  HandMade made;
  const StackId stack = made.stack({made.frame("make"), made.frame("main")});
  made.leak("device:0", "lost", 2, 20, stack);
  made.leak("device:0", "reachable", 1, 5, stack);
  made.at_peak("device:0", 4, 40, stack);
  made.run.reports[0].kinds.emplace_back("device:0", Kind()).second.peak_at_s = 1;
  const Trace trace(made.run);
  EXPECT_EQ(trace.callstacks, std::vector<std::string>{"main make "});
  ASSERT_EQ(trace.dumps.size(), 3u);
  for (const auto& [i, heap, time, bytes, blocks] :
       {std::tuple{0, "device:0", 2, 25, 3}, {1, "device:0 lost", 2, 20, 2}, {2, "device:0 at the peak", 1, 40, 4}}) {
    const Dump& dump = trace.dumps[static_cast<std::size_t>(i)];
    EXPECT_EQ(dump.heap, heap);
    EXPECT_EQ(dump.time, static_cast<Count>(time) * 1'000'000'000);
    ASSERT_EQ(dump.samples.size(), 1u);
    EXPECT_EQ(dump.samples[0].bytes, static_cast<Count>(bytes));
    EXPECT_EQ(dump.samples[0].blocks, static_cast<Count>(blocks));
  }
}

TEST(Perfetto, ProcessesWithOneIdStayApart) {
  HandMade made;
  made.leak("host", "lost", 1, 1, 0);
  made.add_process(1).cistern.rank = 1;
  made.leak("host", "lost", 1, 2, 0);
  const Trace trace(made.run);
  EXPECT_EQ(trace.processes, (std::map<Count, std::string>{{1, "app"}, {2, "rank 1: app"}}));
  ASSERT_EQ(trace.dumps.size(), 4u);
  EXPECT_EQ(trace.dumps[2].pid, 2u);
  EXPECT_EQ(trace.dumps[2].samples[0].bytes, 2u);
}

TEST(Perfetto, LinesOfOneScriptAreFrames) {
  HandMade made;
  Frame first = made.frame("work", "");
  first.file = "a.py", first.line = 1, first.python = true;
  Frame second = first;
  second.line = 2;
  made.leak("host", "lost", 1, 1, made.stack({first, second}));
  std::set<Count> addresses;
  const Fields packets(perfetto(made.run));
  for (const std::string& bytes : packets.texts.at(1)) {
    const Fields packet(bytes);
    if (!packet.texts.contains(12)) continue;
    const Fields interned = packet.message(12);
    for (const std::string& frame : interned.texts.at(6)) addresses.insert(Fields(frame).number(4));
  }
  EXPECT_EQ(addresses.size(), 2u);
}

TEST(Perfetto, ARecordingHasADumpOfEachMoment) {
  HandMade made;
  const StackId stack = made.stack({made.frame("make"), made.frame("main")});
  made.leak("device:0", "never freed", 1, 5, stack);
  Recorded& recorded = made.run.reports[0].recorded.emplace();
  recorded.sites = {{"device:0", "cudaMalloc", stack}, {"device:0", "", 0, true}};
  const auto moment = [](Seconds at_s, std::vector<MomentUse> uses) { return Moment{at_s, "", std::move(uses)}; };
  recorded.moments = {moment(1, {{0, 2, 20, 3, 30}}), moment(1.25, {{0, 2, 20, 3, 30}}), moment(1.5, {{1, 1, 4, 9, 9}}),
                      moment(2, {{0, 1, 5, 4, 31}})};
  recorded.failed = {{1.5, "device:0", "cudaMalloc", 2048, stack}};
  const Trace trace(made.run);
  EXPECT_EQ(trace.callstacks, (std::vector<std::string>{"main make ", "(other call sites) "}));
  ASSERT_EQ(trace.dumps.size(), 3u);  // nothing changed in between
  const auto figures = [&](std::size_t dump, std::size_t sample) {
    const Amount &in = trace.dumps[dump].samples.at(sample), &out = trace.dumps[dump].freed.at(sample);
    return std::array{in.blocks, in.bytes, out.blocks, out.bytes};
  };
  EXPECT_EQ(figures(0, 0), (std::array<Count, 4>{3, 30, 1, 10}));
  EXPECT_EQ(figures(1, 0), (std::array<Count, 4>{3, 30, 3, 30}));  // all of it
  EXPECT_EQ(figures(1, 1), (std::array<Count, 4>{9, 9, 8, 5}));
  EXPECT_EQ(figures(2, 0), (std::array<Count, 4>{4, 35, 3, 30}));  // a block that was freed stays so
  EXPECT_EQ(figures(2, 1), (std::array<Count, 4>{9, 9, 9, 9}));
  using Failed = std::vector<std::pair<Count, std::string>>;
  EXPECT_EQ(trace.failed, (Failed{{1'500'000'000, "device:0: 2.0 KiB failed"}}));
}

TEST(Perfetto, OfNothingIsATrace) { EXPECT_TRUE(Trace(kNoReports).dumps.empty()); }

}  // namespace
}  // namespace cistern::formats
