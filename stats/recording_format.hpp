// The bytes of a recording (shim/doc/recording-format.md), for the process that writes them and for the command that
// reads them. A file is a header, chunks of one size, and, from a process that ended by itself, the names of call sites
// behind them. Little endian, as both processors are.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cistern::recording {

constexpr char kMagic[8] = {'c', 'i', 's', 't', 'r', 'e', 'c', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 4096, kChunkBytes = std::size_t{64} << 10;
// A smaller maximum is this one: each of the writer's slots may have a chunk, and what is thinned needs room.
constexpr std::uint64_t kBytesMin = std::uint64_t{4} << 20;

// Every word that changes while the process runs is written in one step. Moments whose name ends in `ns` are
// nanoseconds since its start; the others, and those of events, are ticks: `zero_ns` plus `ns_per_tick` for each.
struct Header {
  char magic[8];
  std::uint32_t version, header_bytes, chunk_bytes, pid;
  std::uint64_t start_unix_ns;  // by the wall clock
  std::uint64_t zero_ns;
  std::atomic<double> ns_per_tick;   // as far as it is known; better with time
  std::uint64_t host_sample_bytes;   // one host block in so many bytes is recorded; 1: each; 0: none
  std::atomic<std::uint64_t> epoch;  // decides which chunks count: see ChunkHead
  // Thinned: events before a moment that are not in the file any more. Blocks that were live then still are.
  std::atomic<std::uint64_t> thinned_events, thinned_until;
  // Never written: for want of room or of memory, or because a signal handler had interrupted the writing of another.
  std::atomic<std::uint64_t> lost_events, lost_since_ns;
  std::atomic<std::uint64_t> stopped_ns;  // nothing is recorded since then; 0: it goes on
  std::atomic<std::uint64_t> ended_ns;    // 0: the process runs, or was killed
  std::atomic<std::uint64_t> names_at, names_bytes;
  char library_version[32];
  char command[1024];
};
static_assert(sizeof(Header) <= kHeaderBytes);

enum class ChunkKind : std::uint32_t { none, events, kept, definitions };

// `kept`: events of chunks that were thinned. A chunk counts if its epochs are around the header's: `born_epoch` not
// above it, and `dead_epoch` above it or 0. So thinning takes effect in one step.
struct ChunkHead {
  std::atomic<ChunkKind> kind;
  std::atomic<std::uint32_t> committed;  // bytes behind the head that are whole records
  std::uint64_t first_time;              // no event is earlier, and the first one's time counts from it
  std::uint64_t born_epoch, dead_epoch;
  std::uint64_t unused[4];
};
static_assert(sizeof(ChunkHead) == 64);
constexpr std::size_t kRoom = kChunkBytes - sizeof(ChunkHead);

inline bool counts(const ChunkHead& head, std::uint64_t epoch) {
  return head.kind.load(std::memory_order_acquire) != ChunkKind::none && head.born_epoch <= epoch &&
         (!head.dead_epoch || head.dead_epoch > epoch);
}

// --- Records of definitions and names: a tag, the bytes that follow as a varint, those bytes
enum class Definition : std::uint8_t {
  kind = 1,      // number, name
  module,        // number, path, build id
  python_line,   // number, function, file, line
  site,          // number, call, count of frames; each: 0 and the number of a line, or the module (0: none) + 1, offset
  thread,        // number, the system's number
  text,          // its bytes; numbered from 1
  frame,         // numbered from 1: function, file, line, module, build id, offset, 1 inlined | 2 Python
  names_of_site  // number of the site, count, frames
};

// --- Events
enum class EventType : std::uint8_t {
  allocation,
  free,
  resized,
  failed,  // a request
  copy,
  thread  // the thread of the events that follow in the chunk
};
constexpr unsigned kEventTypes = 6;

struct Event {
  EventType type;
  std::uint8_t direction = 0;                   // copies: CopyDirection
  bool pageable = false, asynchronous = false;  // copies
  bool has_stream = false;
  std::uint16_t kind = 0;
  std::uint32_t site = 0;    // 0: not known
  std::uint32_t thread = 0;  // numbered from 1
  std::uint32_t count = 1;   // copies that are counted together
  std::uint64_t time = 0;    // ticks
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
  std::uint64_t weight = kWeight1;  // allocations: so many blocks it stands for, in parts of kWeight1
  static constexpr std::uint64_t kWeight1 = 256;
};

// An event says only what differs from the one before in its chunk.
struct Before {
  std::uint64_t time = 0, address = 0, bytes = 0, stream = 0;
  std::uint32_t site = 0, thread = 0;
  std::uint16_t kind = 0;
};

// The first byte of an event: its type, and what follows.
constexpr unsigned kTypeBits = 7, kOtherKind = 8, kSameSite = 16, kSameBytes = 32, kMore = 64, kHasStream = 128;
// No event with a change of thread before it is longer.
constexpr std::size_t kEventBytesMax = 96;

// Small numbers take few bytes, seven bits in each.
inline std::uint8_t* put_number(std::uint8_t* to, std::uint64_t value) {
  for (; value >= 128; value >>= 7) *to++ = static_cast<std::uint8_t>(value | 128);
  *to++ = static_cast<std::uint8_t>(value);
  return to;
}
// So do small differences of either sign.
inline std::uint64_t difference(std::uint64_t from, std::uint64_t to) {
  const auto signed_one = static_cast<std::int64_t>(to - from);
  return static_cast<std::uint64_t>(signed_one) << 1 ^ static_cast<std::uint64_t>(signed_one >> 63);
}
inline std::uint64_t add_difference(std::uint64_t from, std::uint64_t coded) {
  return from + (coded >> 1 ^ (0 - (coded & 1)));
}
// Blocks lie at multiples of 16: those zeros are not written.
inline std::uint64_t turned(std::uint64_t address) { return address >> 4 | address << 60; }
inline std::uint64_t turned_back(std::uint64_t address) { return address << 4 | address >> 60; }

// `event.time` is not below that of the event before. Returns the end.
inline std::uint8_t* put_event(std::uint8_t* to, const Event& event, Before& before) {
  if (event.thread != before.thread) {
    *to++ = static_cast<std::uint8_t>(EventType::thread);
    to = put_number(to, before.thread = event.thread);
  }
  const bool has_address = event.type <= EventType::resized, has_bytes = event.type != EventType::free;
  const bool has_site = has_bytes && event.type != EventType::resized;
  const bool has_more = event.type == EventType::copy ? event.count != 1 : event.weight != Event::kWeight1;
  unsigned first = static_cast<unsigned>(event.type);
  if (event.kind != before.kind) first |= kOtherKind;
  if (has_site && event.site == before.site) first |= kSameSite;
  if (has_bytes && event.bytes == before.bytes) first |= kSameBytes;
  if (has_more) first |= kMore;
  if (event.has_stream) first |= kHasStream;
  *to++ = static_cast<std::uint8_t>(first);
  to = put_number(to, event.time - before.time);
  before.time = event.time;
  if (first & kOtherKind) to = put_number(to, before.kind = event.kind);
  if (has_address) {
    to = put_number(to, difference(before.address, turned(event.address)));
    before.address = turned(event.address);
  }
  if (has_bytes && !(first & kSameBytes)) to = put_number(to, before.bytes = event.bytes);
  if (has_site && !(first & kSameSite)) to = put_number(to, before.site = event.site);
  if (event.type == EventType::copy)
    *to++ = static_cast<std::uint8_t>(event.direction | (event.pageable ? 16 : 0) | (event.asynchronous ? 32 : 0));
  if (has_more) to = put_number(to, event.type == EventType::copy ? event.count : event.weight);
  if (event.has_stream) {
    to = put_number(to, difference(before.stream, event.stream));
    before.stream = event.stream;
  }
  return to;
}

// Numbers from untrusted bytes. Behind the end, or where a number is too long, they are zero, and ok() is false from
// then on.
class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}
  bool ok() const { return ok_; }
  bool at_end() const { return at_ == end_; }
  std::uint8_t byte() { return at_ == end_ ? (ok_ = false, std::uint8_t{0}) : *at_++; }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint8_t next = byte();
      value |= std::uint64_t{next & 127u} << shift;
      if (next < 128) return shift == 63 && next > 1 ? (ok_ = false, 0) : value;
    }
    ok_ = false;
    return 0;
  }
  // Above `most` it is not ok.
  std::uint64_t number(std::uint64_t most) {
    const std::uint64_t value = number();
    if (value <= most) return value;
    ok_ = false;
    return 0;
  }
  std::span<const std::uint8_t> bytes(std::uint64_t count) {
    if (count > static_cast<std::uint64_t>(end_ - at_)) return ok_ = false, std::span<const std::uint8_t>();
    at_ += count;
    return {at_ - count, static_cast<std::size_t>(count)};
  }

 private:
  const std::uint8_t *at_, *end_;
  bool ok_ = true;
};

// The next event; false: there is none, or the bytes are none of a recording (`bytes.ok()` says which).
inline bool next_event(Bytes& bytes, Before& before, Event& event) {
  for (;;) {
    if (bytes.at_end()) return false;
    const unsigned first = bytes.byte(), type = first & kTypeBits;
    if (type >= kEventTypes) return bytes.number(0), bytes.bytes(~std::uint64_t{0}), false;
    if (type == static_cast<unsigned>(EventType::thread)) {
      before.thread = static_cast<std::uint32_t>(bytes.number(UINT32_MAX));
      continue;
    }
    event = {.type = static_cast<EventType>(type)};
    const bool has_address = event.type <= EventType::resized, has_bytes = event.type != EventType::free;
    const bool has_site = has_bytes && event.type != EventType::resized;
    before.time += bytes.number(UINT64_MAX / 2 - before.time);
    if (first & kOtherKind) before.kind = static_cast<std::uint16_t>(bytes.number(UINT16_MAX));
    if (has_address) before.address = add_difference(before.address, bytes.number());
    if (has_bytes && !(first & kSameBytes)) before.bytes = bytes.number();
    if (has_site && !(first & kSameSite)) before.site = static_cast<std::uint32_t>(bytes.number(UINT32_MAX));
    if (event.type == EventType::copy) {
      const unsigned how = bytes.byte();
      event.direction = how & 15;
      event.pageable = how & 16;
      event.asynchronous = how & 32;
    }
    if (first & kMore) {
      const std::uint64_t more = bytes.number(UINT32_MAX);
      if (event.type == EventType::copy)
        event.count = static_cast<std::uint32_t>(more);
      else
        event.weight = more;
    }
    if (first & kHasStream) before.stream = add_difference(before.stream, bytes.number());
    event.time = before.time;
    event.kind = before.kind;
    event.thread = before.thread;
    if (has_address) event.address = turned_back(before.address);
    if (has_bytes) event.bytes = before.bytes;
    if (has_site) event.site = before.site;
    event.has_stream = first & kHasStream;
    if (event.has_stream) event.stream = before.stream;
    return bytes.ok();
  }
}

// The events of a chunk.
class ChunkEvents {
 public:
  ChunkEvents(std::uint64_t first_time, std::span<const std::uint8_t> committed)
      : first_time_(first_time), bytes_(committed), before_{.time = first_time} {}
  std::uint64_t first_time() const { return first_time_; }
  bool next() { return next_event(bytes_, before_, event_); }
  bool ok() const { return bytes_.ok(); }
  const Event& event() const { return event_; }

 private:
  std::uint64_t first_time_;
  Bytes bytes_;
  Before before_;
  Event event_{EventType::free};
};

// Two events of one address at one moment: its free came first.
inline bool is_before(const Event& one, const Event& other) {
  if (one.time != other.time) return one.time < other.time;
  return one.type == EventType::free && other.type != EventType::free;
}

}  // namespace cistern::recording
