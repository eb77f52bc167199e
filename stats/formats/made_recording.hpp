// Recordings for tests, made by hand.
#pragma once
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

#include "stats/formats/recording.hpp"

namespace cistern::formats {

using recording::Definition;
using recording::Header;

// A file as a process writes it: one chunk of definitions, chunks of events, names.
class MadeRecording {
 public:
  MadeRecording() : bytes(recording::kHeaderBytes) {
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

// `more`: chunks of later events.
inline MadeRecording made(const std::vector<std::vector<RecordedEvent>>& more = {}) {
  MadeRecording maker;
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
  for (const std::vector<RecordedEvent>& events : more) maker.add_events(events);
  maker.raw("load"), maker.define(Definition::text);
  maker.raw("a.cpp"), maker.define(Definition::text);
  maker.number(1), maker.number(2), maker.number(7), maker.number(0), maker.number(0), maker.number(16),
      maker.number(1), maker.define(Definition::frame);
  maker.number(4), maker.number(1), maker.number(1), maker.define(Definition::names_of_site);
  maker.end_names();
  return maker;
}

}  // namespace cistern::formats
