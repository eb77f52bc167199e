// The memory of a recorded process while its events go by, one after another: what is live, in all and by call site.
// It takes room for the blocks that are live at one time, and for the call sites, whatever the file says.
#pragma once
#include <array>
#include <map>

#include "stats/formats/recording.hpp"

namespace cistern::formats {

// The sums of a kind of memory, or of a call site of one kind. Samples count as the blocks that they stand for.
struct RecordedSums {
  Count allocations = 0, allocated_bytes = 0;  // so far
  Count blocks = 0, bytes = 0;                 // live now
  void add(const RecordedSums& more) {
    allocations += more.allocations, allocated_bytes += more.allocated_bytes;
    blocks += more.blocks, bytes += more.bytes;
  }
};

struct RecordedKind : RecordedSums {
  Count frees = 0, failed = 0;
  Count peak_bytes = 0, peak_events = 0;  // the first time that its bytes were most: after so many events of all kinds
  Count peak_time = 0;
};

struct RecordedUse : RecordedSums {
  Count kind;
  std::uint32_t site;  // 0: not known
};

class RecordedMemory {
  static constexpr std::uint32_t kNone = UINT32_MAX;

 public:
  struct Block {
    Count address = 0, bytes = 0, time = 0;
    std::uint32_t use = kNone, weight = 0;  // the number of its use
    Count weighted_blocks() const { return (weight + RecordedEvent::kWeight1 / 2) / RecordedEvent::kWeight1; }
    Count weighted_bytes() const;
  };

  RecordedMemory() : slots_(kSlotsMin) { known_.fill(kNone); }

  // Throws BadReport where no process can have done this.
  void apply(const RecordedEvent& event);

  Count events() const { return events_; }
  const std::map<Count, RecordedKind>& kinds() const { return kinds_; }  // by number
  const std::vector<RecordedUse>& uses() const { return uses_; }         // in the order of their first allocations
  // Live blocks. The pointer is good until the next event; null: none is known there.
  const Block* block_at(Count kind, Count address) const {
    const Block& block = slots_[slot_of(kind, address)];
    return block.use == kNone ? nullptr : &block;
  }
  template <class Visit>
  void for_each_block(Visit&& visit) const {
    for (const Block& block : slots_)
      if (block.use != kNone) visit(block);
  }
  // Nothing more is applied: its largest part is not needed any more.
  void forget_blocks() { slots_ = {}; }

 private:
  static constexpr std::size_t kSlotsMin = 1024;
  std::size_t place_of(Count kind, Count address) const;
  std::size_t slot_of(Count kind, Count address) const;  // the block's, or the free one where it belongs
  void erase(std::size_t at);
  void grow();
  std::uint32_t use_of(const RecordedEvent& event);
  void allocate(RecordedKind& kind, const RecordedEvent& event);
  void resize(RecordedKind& kind, Block& block, Count bytes);
  void count(RecordedKind& kind, const Block& block, int sign);

  std::vector<Block> slots_;  // a hash table without chains: a power of two, at most three quarters full
  std::size_t blocks_ = 0;
  Count events_ = 0;
  std::map<Count, RecordedKind> kinds_;
  std::vector<RecordedUse> uses_;
  std::unordered_map<Count, std::uint32_t> use_ids_;
  std::array<std::uint32_t, 4096> known_;  // uses by a part of their hash: most events are of few of them
};

}  // namespace cistern::formats
