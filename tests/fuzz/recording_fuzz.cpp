// Fuzzer of recordings: the input says what a file has. The file is read, or refused for a reason that has words. Its
// events come in the order of time, and each event that was read can be written and read again.
//
// A part is a byte, then the bytes it wants: a word of the header, a chunk, the names at the end, or a cut. Input that
// has ended reads as zeros.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "stats/formats/memory_viz.hpp"
#include "stats/formats/parquet.hpp"
#include "stats/formats/perfetto.hpp"
#include "stats/formats/recorded_run.hpp"
#include "stats/formats/rmm.hpp"
#include "stats/formats/summary.hpp"

namespace {

using namespace cistern;
using recording::Event;
using recording::Header;
using Bytes = std::vector<std::uint8_t>;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "recording_fuzz: %s\n", what);
  std::abort();
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t bytes) : at_(data), end_(data + bytes) {}
  bool is_empty() const { return at_ == end_; }
  std::uint8_t byte() { return is_empty() ? 0 : *at_++; }
  std::uint64_t word(int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= std::uint64_t{byte()} << 8 * i;
    return value;
  }
  Bytes text() {
    const std::uint64_t asked = word(2);
    const auto bytes = std::min<std::size_t>(asked, static_cast<std::size_t>(end_ - at_));
    at_ += bytes;
    return {at_ - bytes, at_};
  }

 private:
  const std::uint8_t *at_, *end_;
};

class File {
 public:
  File() : bytes_(recording::kHeaderBytes) {
    std::memcpy(bytes_.data(), recording::kMagic, sizeof recording::kMagic);
    set(offsetof(Header, version), recording::kVersion);
    set(offsetof(Header, header_bytes), static_cast<std::uint32_t>(recording::kHeaderBytes));
    set(offsetof(Header, chunk_bytes), static_cast<std::uint32_t>(recording::kChunkBytes));
    set(offsetof(Header, ns_per_tick), 0.5);
  }
  void add(Input& input) {
    switch (input.byte() % 4) {
      case 0: {
        const std::size_t at = input.byte() % (offsetof(Header, command) / 8) * 8;
        return set(at, input.word(8));
      }
      case 1:
        return add_chunk(input);
      case 2: {
        const Bytes names = input.text();
        set(offsetof(Header, names_at), static_cast<std::uint64_t>(bytes_.size()));
        set(offsetof(Header, names_bytes), static_cast<std::uint64_t>(names.size()));
        bytes_.insert(bytes_.end(), names.begin(), names.end());
        return;
      }
      case 3:
        bytes_.resize(bytes_.size() - std::min<std::size_t>(input.word(2), bytes_.size()));
    }
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  template <class Word>
  void set(std::size_t at, Word word) {
    if (at + sizeof word <= bytes_.size()) std::memcpy(bytes_.data() + at, &word, sizeof word);
  }
  void add_chunk(Input& input) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + recording::kChunkBytes);
    set(at, std::uint32_t{input.byte()});
    set(at + 8, input.word(4));
    set(at + 16, std::uint64_t{input.byte()});
    set(at + 24, std::uint64_t{input.byte()});
    const bool is_whole = input.byte() % 16;
    const Bytes committed = input.text();
    set(at + 4, is_whole ? static_cast<std::uint32_t>(committed.size()) : static_cast<std::uint32_t>(input.word(4)));
    const std::span<const std::uint8_t> fits(committed.data(), std::min(committed.size(), recording::kRoom));
    std::ranges::copy(fits, bytes_.data() + at + sizeof(recording::ChunkHead));
    check_again(fits);
  }

  static bool same(const Event& one, const Event& other) {
    return one.type == other.type && one.kind == other.kind && one.site == other.site && one.thread == other.thread &&
           one.time == other.time && one.address == other.address && one.bytes == other.bytes &&
           one.weight == other.weight && one.count == other.count && one.stream == other.stream &&
           one.has_stream == other.has_stream && one.direction == other.direction && one.pageable == other.pageable &&
           one.asynchronous == other.asynchronous;
  }
  static void check_again(std::span<const std::uint8_t> bytes) {
    std::vector<Event> events;
    Bytes again;
    recording::Before before;
    for (recording::ChunkEvents read(0, bytes); read.next();) {
      std::uint8_t coded[recording::kEventBytesMax];
      events.push_back(read.event());
      std::uint8_t* const end = recording::put_event(coded, read.event(), before);
      require(end <= std::end(coded), "an event is no longer than it may be");
      again.insert(again.end(), std::begin(coded), end);
    }
    recording::ChunkEvents read(0, again);
    for (const Event& event : events) require(read.next() && same(read.event(), event), "an event comes back");
    require(!read.next() && read.ok(), "nothing else comes back");
  }

  Bytes bytes_;
};

void read(const Bytes& bytes) {
  const formats::Recording file(bytes);
  std::uint64_t last = 0;
  file.for_each_event([&](const Event& event) {
    require(event.time >= last, "events are in order");
    last = event.time;
  });
  const formats::Run run = formats::run_of(file);
  require(!formats::summary(run, {}).empty(), "a summary has words");
  require(!formats::perfetto(run).empty(), "a trace has packets");
  require(!formats::memory_viz(file, {.events = 10, .blocks = 10}).empty(), "a snapshot has members");
  formats::rmm(file, [](std::string_view) {});
  formats::Parquet table([](std::string_view) {});
  table.add({}, run);
  table.end();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  File file;
  for (Input input(data, bytes); !input.is_empty();) file.add(input);
  try {
    read(file.bytes());
  } catch (const formats::BadReport& bad) {
    require(bad.what() && *bad.what(), "a refusal has words");
  }
  return 0;
}
