// Recordings that are read: what they say, and that no bytes of a file, whatever they are, give more than an error.
#include "stats/formats/recording.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <random>

#include "stats/formats/recording_moments.hpp"
#include "stats/formats/recording_summary.hpp"

namespace cistern::formats {
namespace {

using recording::Definition;
using recording::Header;

// A file as a process writes it: one chunk of definitions, chunks of events, names.
class Maker {
 public:
  Maker() : bytes(recording::kHeaderBytes) {
    std::memcpy(bytes.data(), recording::kMagic, sizeof recording::kMagic);
    set<std::uint32_t>(offsetof(Header, version), recording::kVersion);
    set<std::uint32_t>(offsetof(Header, header_bytes), recording::kHeaderBytes);
    set<std::uint32_t>(offsetof(Header, chunk_bytes), recording::kChunkBytes);
    set<std::uint32_t>(offsetof(Header, pid), 77);
    std::strcpy(reinterpret_cast<char*>(bytes.data()) + offsetof(Header, command), "./app --fast");
    set<std::uint64_t>(offsetof(Header, ended_ns), 5'000'000'000);
    set<double>(offsetof(Header, ns_per_tick), 1);
  }
  template <class Word>
  void set(std::size_t at, Word word) {
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  void number(std::uint64_t value) {
    std::uint8_t coded[10];
    part_.insert(part_.end(), coded, recording::put_number(coded, value));
  }
  void text(std::string_view text) {
    number(text.size());
    part_.insert(part_.end(), text.begin(), text.end());
  }
  void raw(std::string_view text) { part_.insert(part_.end(), text.begin(), text.end()); }
  void define(Definition tag) {
    std::vector<std::uint8_t> part;
    part.swap(part_);
    all_.push_back(static_cast<std::uint8_t>(tag));
    number(part.size());
    all_.insert(all_.end(), part_.begin(), part_.end());
    all_.insert(all_.end(), part.begin(), part.end());
    part_.clear();
  }
  void end_definitions() { add_chunk(recording::ChunkKind::definitions, 0, all_), all_.clear(); }
  void end_names() {
    set<std::uint64_t>(offsetof(Header, names_at), bytes.size());
    set<std::uint64_t>(offsetof(Header, names_bytes), all_.size());
    bytes.insert(bytes.end(), all_.begin(), all_.end());
  }
  void add_events(const std::vector<RecordedEvent>& events) {
    std::vector<std::uint8_t> coded(recording::kRoom);
    recording::Before before{.time = events[0].time};
    std::uint8_t* at = coded.data();
    for (const RecordedEvent& event : events) at = recording::put_event(at, event, before);
    coded.resize(static_cast<std::size_t>(at - coded.data()));
    add_chunk(recording::ChunkKind::events, events[0].time, coded);
  }
  void add_chunk(recording::ChunkKind kind, std::uint64_t first_time, std::vector<std::uint8_t> committed,
                 std::uint64_t born = 0, std::uint64_t dead = 0) {
    const std::size_t at = bytes.size();
    bytes.resize(at + recording::kChunkBytes);
    set(at, kind);
    set(at + 4, static_cast<std::uint32_t>(committed.size()));
    set(at + 8, first_time), set(at + 16, born), set(at + 24, dead);
    std::memcpy(bytes.data() + at + sizeof(recording::ChunkHead), committed.data(), committed.size());
  }

  std::vector<std::uint8_t> bytes;

 private:
  std::vector<std::uint8_t> part_, all_;
};

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr RecordedEvent allocation(Count s, std::uint64_t address, std::uint64_t bytes, std::uint32_t site) {
  return {.type = RecordedType::allocation,
          .kind = 3,
          .site = site,
          .thread = 1,
          .time = s * kSecond,
          .address = address,
          .bytes = bytes};
}
constexpr RecordedEvent freed(Count s, std::uint64_t address) {
  return {.type = RecordedType::free, .kind = 3, .thread = 2, .time = s * kSecond, .address = address};
}

Maker made() {
  Maker maker;
  maker.number(3), maker.text("device:0"), maker.define(Definition::kind);
  maker.number(1), maker.text("/app"), maker.text("abcd"), maker.define(Definition::module);
  maker.number(1), maker.text("train"), maker.text("t.py"), maker.number(9), maker.define(Definition::python_line);
  maker.number(4), maker.text("cuMemAlloc"), maker.number(2), maker.number(2), maker.number(16), maker.number(1),
      maker.number(99), maker.define(Definition::site);
  maker.number(5), maker.text("malloc"), maker.number(2), maker.number(2), maker.number(32), maker.number(0),
      maker.number(1), maker.define(Definition::site);
  maker.number(1), maker.number(1234), maker.define(Definition::thread);
  maker.end_definitions();
  maker.add_events({allocation(1, 0x1000, 100, 4), allocation(2, 0x2000, 300, 5), freed(3, 0x1000)});
  maker.add_events({freed(4, 0x2000), freed(4, 0x9000)});
  maker.raw("load"), maker.define(Definition::text);
  maker.raw("a.cpp"), maker.define(Definition::text);
  maker.number(1), maker.number(2), maker.number(7), maker.number(0), maker.number(0), maker.number(16),
      maker.number(1), maker.define(Definition::frame);
  maker.number(4), maker.number(1), maker.number(1), maker.define(Definition::names_of_site);
  maker.end_names();
  return maker;
}

std::string refusal_of(const std::vector<std::uint8_t>& bytes) {
  try {
    const Recording recording(bytes);
    recording_summary(recording, 5);
    levels(recording, 5, 10);
  } catch (const BadReport& bad) {
    return bad.what();
  }
  return "";
}

TEST(ReadRecording, WhatItSays) {
  const Maker maker = made();
  const Recording recording(maker.bytes);
  EXPECT_EQ(recording.head().pid, 77u);
  EXPECT_EQ(recording.head().command, "./app --fast");
  EXPECT_EQ(recording.head().ended_s, 5);
  EXPECT_EQ(recording.kind_name(3), "device:0");
  EXPECT_EQ(recording.kind_name(8), "kind 8");
  EXPECT_EQ(recording.thread(1), 1234u);
  const auto frames = [&](std::uint32_t site) {
    std::vector<Frame> all;
    for (const FrameId id : recording.run().stacks[recording.site(site)->stack])
      all.push_back(recording.run().frames[id]);
    return all;
  };
  Frame load, train;
  load.function = "load", load.file = "a.cpp", load.line = 7, load.offset = 16, load.inlined = true;
  train.function = "train", train.file = "t.py", train.line = 9, train.python = true;
  EXPECT_EQ(frames(4), std::vector<Frame>{load});
  EXPECT_EQ(frames(5), std::vector<Frame>{train});
  EXPECT_FALSE(recording.site(6));
}

TEST(ReadRecording, WithoutNamesStacksHaveModules) {
  Maker maker = made();
  maker.set<std::uint64_t>(offsetof(Header, names_bytes), 0);
  const Recording recording(maker.bytes);
  const Stack& stack = recording.run().stacks[recording.site(4)->stack];
  ASSERT_EQ(stack.size(), 2u);
  Frame in_module, generated;
  in_module.module = "/app", in_module.build_id = "abcd", in_module.offset = 16;
  generated.address = 99;
  EXPECT_EQ(recording.run().frames[stack[0]], in_module);
  EXPECT_EQ(recording.run().frames[stack[1]], generated);
}

TEST(ReadRecording, Moments) {
  const Maker maker = made();
  const Recording recording(maker.bytes);
  const RecordedTotals all = totals(recording);
  EXPECT_EQ(all.events, 5u);
  EXPECT_EQ(all.threads, 2u);
  EXPECT_EQ(all.unknown_frees, 1u);
  const RecordedKind& kind = all.kinds.at(3);
  EXPECT_EQ(kind.peak_bytes, 400u);
  EXPECT_EQ(kind.peak_s, 2);
  EXPECT_EQ(kind.live_bytes, 0u);
  const auto at_peak = live_by_site(recording, {.events = kind.peak_events});
  ASSERT_EQ(at_peak.size(), 2u);
  EXPECT_EQ(at_peak[0].site, 5u);
  EXPECT_EQ(at_peak[1].bytes, 100u);
  EXPECT_EQ(live_by_site(recording, {.seconds = 3}).size(), 1u);
  const Named<Levels> over_time = levels(recording, 5, 5);
  ASSERT_EQ(over_time.size(), 1u);
  EXPECT_EQ(over_time[0].second.last, (std::vector<Count>{0, 100, 400, 300, 0}));
  EXPECT_EQ(over_time[0].second.least, (std::vector<Count>{0, 0, 100, 300, 0}));
  EXPECT_NE(recording_summary(recording, 5).find("LARGEST AT THE PEAK OF device:0  400 B at 2.00 s"),
            std::string::npos);
}

TEST(ReadRecording, OnlyChunksOfItsEpochCount) {
  Maker maker = made();
  maker.set<std::uint64_t>(offsetof(Header, names_at), 0), maker.set<std::uint64_t>(offsetof(Header, names_bytes), 0);
  maker.bytes.resize((maker.bytes.size() - recording::kHeaderBytes) / recording::kChunkBytes * recording::kChunkBytes +
                     recording::kHeaderBytes);
  maker.add_chunk(recording::ChunkKind::kept, 0, {0xff}, 8, 0);
  maker.add_chunk(recording::ChunkKind::events, 0, {0xff}, 0, 7);
  maker.set<std::uint64_t>(offsetof(Header, epoch), 7);
  EXPECT_EQ(refusal_of(maker.bytes), "");
  maker.set<std::uint64_t>(offsetof(Header, epoch), 8);
  EXPECT_EQ(refusal_of(maker.bytes), "is a damaged recording");
}

TEST(ReadRecording, WhatIsRefused) {
  EXPECT_EQ(refusal_of({}), "is no recording");
  const Maker maker = made();
  std::vector<std::uint8_t> bytes = maker.bytes;
  bytes.resize(4000);
  EXPECT_EQ(refusal_of(bytes), "is a recording that was cut off");
  bytes = maker.bytes;
  bytes.pop_back();
  EXPECT_EQ(refusal_of(bytes), "is a recording that was cut off");
  bytes = maker.bytes;
  bytes[offsetof(Header, version)] = 2;
  EXPECT_EQ(refusal_of(bytes), "was recorded by a newer version of Cistern");
}

// Flipped where something is, and cut anywhere.
TEST(ReadRecording, AnyBytesAreReadOrRefused) {
  const Maker maker = made();
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < maker.bytes.size(); ++i)
    if (maker.bytes[i] || i < 300) used.push_back(i);  // fields of the head are zero
  std::mt19937 random(1);
  unsigned read = 0, refused = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::vector<std::uint8_t> bytes = maker.bytes;
    for (unsigned flips = random() % 4 + 1; flips; --flips)
      bytes[used[random() % used.size()]] = static_cast<std::uint8_t>(random() % 3 ? random() : 0xff);
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    ++(refusal_of(bytes).empty() ? read : refused);
  }
  EXPECT_GT(read, 1000u);
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace cistern::formats
