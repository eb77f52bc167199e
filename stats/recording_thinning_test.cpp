// Thinned chunks against a model: what lives at a moment, and every event after it, stays.
#include "stats/recording_thinning.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "stats/recording_merge.hpp"

namespace cistern::recording {
namespace {

struct alignas(64) ChunkMemory {
  char bytes[kChunkBytes] = {};
  ChunkHead* head() { return reinterpret_cast<ChunkHead*>(bytes); }
};

class Chunks {
 public:
  ChunkHead* add() {
    memory_.push_back(std::make_unique<ChunkMemory>());
    return memory_.back()->head();
  }
  std::vector<ChunkHead*> add(std::size_t count) {
    std::vector<ChunkHead*> heads;
    while (heads.size() < count) heads.push_back(add());
    return heads;
  }

 private:
  std::vector<std::unique_ptr<ChunkMemory>> memory_;
};

std::span<const std::uint8_t> committed(const ChunkHead& head) {
  return {reinterpret_cast<const std::uint8_t*>(&head + 1), head.committed.load()};
}

std::vector<Event> events_of(std::vector<ChunkHead*> heads) {
  std::ranges::sort(heads, {}, [](const ChunkHead* head) { return head->first_time; });
  std::vector<ChunkEvents> chunks;
  for (const ChunkHead* const head : heads) chunks.emplace_back(head->first_time, committed(*head));
  std::vector<ChunkEvents*> waiting(chunks.size());
  Merge merge(chunks, waiting.data());
  std::vector<Event> events;
  while (const Event* const event = merge.next()) events.push_back(*event);
  EXPECT_TRUE(merge.ok());
  return events;
}

bool same(const Event& one, const Event& other) {
  return one.type == other.type && one.kind == other.kind && one.site == other.site && one.thread == other.thread &&
         one.time == other.time && one.address == other.address && one.bytes == other.bytes &&
         one.weight == other.weight && one.count == other.count && one.stream == other.stream &&
         one.has_stream == other.has_stream && one.direction == other.direction && one.pageable == other.pageable &&
         one.asynchronous == other.asynchronous;
}

// Threads that write a chunk of their own each, one after the other, as a process does.
class Process {
 public:
  explicit Process(unsigned seed) : random_(seed) {}
  void step() {
    now_ns_ += random_() % 1000;
    const unsigned thread = random_() % 5;
    Event event{.type = EventType::allocation,
                .kind = static_cast<std::uint16_t>(random_() % 3),
                .thread = thread + 1,
                .time = now_ns_};
    const unsigned what = random_() % 16;
    if (what == 0) {
      event.type = EventType::copy;
      event.direction = random_() % 5;
      event.pageable = random_() % 2;
      event.asynchronous = random_() % 2;
      event.count = random_() % 3;
      event.bytes = random_();
      event.site = random_() % 10;
      event.has_stream = random_() % 2;
      if (event.has_stream) event.stream = random_() * std::uint64_t{random_()};
    } else if (what == 1) {
      event.type = EventType::failed;
      event.bytes = random_() * std::uint64_t{random_()};
    } else if (what < 10 || live.empty()) {
      event.address = next_address_ += 8 * (random_() % 1000 + 1);
      event.bytes = random_() % 100000;
      event.site = random_() % 10;
      event.weight = random_() % 2 ? Event::kWeight1 : random_() % 100000;
      live[{event.kind, event.address}] = event;
    } else {
      auto block = live.begin();
      std::advance(block, random_() % std::min<std::size_t>(live.size(), 50));
      event.type = what == 15 ? EventType::resized : EventType::free;
      event.kind = block->first.first;
      event.address = block->first.second;
      if (event.type == EventType::resized)
        block->second.bytes = event.bytes = random_() % 100000;
      else
        live.erase(block);
    }
    events.push_back(event);
    put(thread, event);
  }
  std::vector<ChunkHead*> chunks;
  std::vector<Event> events;
  std::map<std::pair<std::uint16_t, std::uint64_t>, Event> live;

 private:
  struct Open {
    ChunkHead* head = nullptr;
    std::size_t used = 0, most = 0;
    Before before;
  };
  void put(unsigned thread, const Event& event) {
    Open& open = open_[thread];
    if (!open.head || open.used + kEventBytesMax > open.most) {
      open = {memory_.add(), 0, kEventBytesMax + random_() % 2000, {.time = now_ns_}};
      open.head->first_time = now_ns_;
      chunks.push_back(open.head);
    }
    auto* const first = reinterpret_cast<std::uint8_t*>(open.head + 1);
    open.used = static_cast<std::size_t>(put_event(first + open.used, event, open.before) - first);
    open.head->committed = static_cast<std::uint32_t>(open.used);
  }

  std::mt19937 random_;
  Chunks memory_;
  std::uint64_t now_ns_ = 1000, next_address_ = 0x7f0000000000;
  Open open_[5];
};

TEST(RecordingFormat, EventsComeBackInOrder) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Process process(seed);
    for (int i = 0; i < 3000; ++i) process.step();
    const std::vector<Event> read = events_of(process.chunks);
    ASSERT_EQ(read.size(), process.events.size()) << seed;
    std::map<std::uint32_t, std::vector<Event>> by_thread[2];
    for (const Event& event : read) by_thread[0][event.thread].push_back(event);
    for (const Event& event : process.events) by_thread[1][event.thread].push_back(event);
    for (const auto& [thread, events] : by_thread[1])
      EXPECT_TRUE(std::ranges::equal(events, by_thread[0][thread], same)) << seed;
  }
}

TEST(RecordingThinning, WhatLivesStaysAndWhatComesLater) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Process process(seed);
    for (int i = 0; i < 5000; ++i) process.step();
    // The oldest third, as the process chooses it.
    std::vector<ChunkHead*> all = process.chunks;
    std::ranges::sort(all, {}, [](const ChunkHead* head) { return head->first_time; });
    const std::size_t third = all.size() / 3;
    const std::uint64_t until = all[third]->first_time;
    Chunks memory;
    std::vector<ChunkHead*> into = memory.add(third);
    const auto thinned = thin({all.data(), third}, until, into);
    ASSERT_TRUE(thinned) << seed;
    EXPECT_LT(thinned->chunks, third);
    std::vector<ChunkHead*> after(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(thinned->chunks));
    after.insert(after.end(), all.begin() + static_cast<std::ptrdiff_t>(third), all.end());
    const std::vector<Event> read = events_of(after);
    std::map<std::pair<std::uint16_t, std::uint64_t>, Event> live;
    std::size_t late = 0;
    for (const Event& event : read) {
      if (event.time >= until) ++late;
      if (event.time < until) {
        EXPECT_EQ(event.type, EventType::allocation);
      }
      if (event.type == EventType::allocation) live[{event.kind, event.address}] = event;
      if (event.type == EventType::free) {
        EXPECT_EQ(live.erase({event.kind, event.address}), 1u) << seed;
      }
      if (event.type == EventType::resized) live[{event.kind, event.address}].bytes = event.bytes;
    }
    EXPECT_EQ(late, static_cast<std::size_t>(std::ranges::count_if(
                        process.events, [&](const Event& event) { return event.time >= until; })));
    EXPECT_EQ(read.size() + thinned->dropped_events, process.events.size()) << seed;
    ASSERT_EQ(live.size(), process.live.size()) << seed;
    for (const auto& [key, event] : process.live) EXPECT_TRUE(same(live[key], event)) << seed;
  }
}

TEST(RecordingThinning, TooFewChunksAreSaid) {
  Process process(1);
  for (int i = 0; i < 20000; ++i) process.step();
  EXPECT_FALSE(thin(process.chunks, UINT64_MAX, {}));
}

}  // namespace
}  // namespace cistern::recording
