// Recordings that are read: what they say, and that no bytes of a file, whatever they are, give more than an error.
#include "stats/formats/recording.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <random>

#include "stats/formats/made_recording.hpp"
#include "stats/formats/recorded_run.hpp"

namespace cistern::formats {
namespace {

std::string refusal_of(const std::vector<std::uint8_t>& bytes) {
  try {
    run_of(Recording(bytes));
  } catch (const BadReport& bad) {
    return bad.what();
  }
  return "";
}

TEST(ReadRecording, WhatItSays) {
  const MadeRecording maker = made();
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
  MadeRecording maker = made();
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

TEST(ReadRecording, OnlyChunksOfItsEpochCount) {
  MadeRecording maker = made();
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
  const MadeRecording maker = made();
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
  const MadeRecording maker = made();
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
