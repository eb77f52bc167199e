// Sums of a recording's events: the memory of each kind over time, and by call site at a moment.
#pragma once
#include <map>

#include "stats/formats/recording.hpp"

namespace cistern::formats {

// Blocks that are live after the events so far, with their weights: a sample stands for several blocks.
class LiveRecorded {
 public:
  struct Block {
    Count bytes, time, weight;
    std::uint32_t site, thread;
    Count weighted_blocks() const { return (weight + RecordedEvent::kWeight1 / 2) / RecordedEvent::kWeight1; }
    Count weighted_bytes() const;
  };
  // The change of its kind's live memory by one event.
  struct Change {
    std::int64_t blocks = 0, bytes = 0;
    bool unknown = false;  // a free of no block that the file knows
  };
  Change apply(const RecordedEvent& event);
  void for_each(const std::function<void(Count kind, Count address, const Block& block)>& visit) const;

 private:
  struct Key {
    Count kind, address;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const { return (key.address ^ key.kind << 48) * 0x9E3779B97F4A7C15 >> 20; }
  };
  std::unordered_map<Key, Block, Hash> blocks_;
};

struct RecordedKind {
  std::string name;
  Count allocations = 0, frees = 0, failed = 0, copies = 0, copied_bytes = 0;
  Count live_blocks = 0, live_bytes = 0;  // in the end
  Count peak_blocks = 0, peak_bytes = 0;  // when its bytes were most
  Count peak_events = 0;                  // how many events there were until then
  Seconds peak_s = 0;
};

struct RecordedTotals {
  Count events = 0, unknown_frees = 0, threads = 0;
  Seconds last_s = 0;
  std::map<Count, RecordedKind> kinds;  // by number
};
RecordedTotals totals(const Recording& recording);

// Live bytes of each kind in `points` equal intervals up to `end_s`.
Named<Levels> levels(const Recording& recording, Seconds end_s, std::size_t points);

// Up to a moment, or so many of all events.
struct Until {
  Seconds seconds = 1e300;
  Count events = UINT64_MAX;
};
struct RecordedUse {
  Count kind;
  std::uint32_t site;  // 0: not known
  Count blocks = 0, bytes = 0;
};
// Live memory then, the largest first.
std::vector<RecordedUse> live_by_site(const Recording& recording, const Until& until);

}  // namespace cistern::formats
