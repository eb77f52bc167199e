// See recorded_memory.hpp.
#include "stats/formats/recorded_memory.hpp"

#include <algorithm>

namespace cistern::formats {
namespace {

// More are in no process that writes a file of a size that is read: 2 GiB of slots, and 1 GiB while they become so
// many.
constexpr std::size_t kBlocksMax = std::size_t{3} << 24;
constexpr std::size_t kUsesMax = std::size_t{1} << 20, kKindsMax = 1024;
constexpr Count kBytesMax = Count{1} << 62;

// A sum that overflows is none of a process.
void add(Count& sum, Count more) {
  if (more > kBytesMax || sum + more > kBytesMax) throw BadReport("is a damaged recording: its sizes make no sense");
  sum += more;
}

std::size_t mixed(Count value) {
  value = (value ^ value >> 31) * 0x7FB5D329728EA185;
  value = (value ^ value >> 27) * 0x81DADEF4BC2DD44D;
  return value ^ value >> 33;
}

}  // namespace

Count RecordedMemory::Block::weighted_bytes() const {
  if (weight == RecordedEvent::kWeight1) return std::min(bytes, kBytesMax);
  const double weighted = static_cast<double>(bytes) * static_cast<double>(weight) / RecordedEvent::kWeight1;
  return static_cast<Count>(std::min(weighted, static_cast<double>(kBytesMax)));
}

void RecordedMemory::apply(const RecordedEvent& event) {
  ++events_;
  if (event.type > RecordedType::failed) return;
  if (kinds_.size() == kKindsMax && !kinds_.contains(event.kind))
    throw BadReport("has more kinds of memory than can be shown");
  RecordedKind& kind = kinds_[event.kind];
  if (event.type == RecordedType::failed) {
    ++kind.failed;
    return;
  }
  if (event.type == RecordedType::allocation) {
    allocate(kind, event);
  } else if (Block& block = slots_[slot_of(event.kind, event.address)]; block.use != kNone) {
    if (event.type == RecordedType::free) {
      count(kind, block, -1);
      erase(static_cast<std::size_t>(&block - slots_.data()));
    } else {
      resize(kind, block, event.bytes);
    }
  }
  kind.frees += event.type == RecordedType::free;
  if (kind.bytes <= kind.peak_bytes) return;
  kind.peak_bytes = kind.bytes;
  kind.peak_events = events_;
  kind.peak_time = event.time;
}

void RecordedMemory::allocate(RecordedKind& kind, const RecordedEvent& event) {
  const std::uint32_t use = use_of(event);
  if (4 * blocks_ == 3 * slots_.size()) grow();
  Block& block = slots_[slot_of(event.kind, event.address)];
  if (block.use == kNone)
    ++blocks_;
  else
    count(kind, block, -1);  // its free is not in the file
  block = {event.address, event.bytes, event.time, use, static_cast<std::uint32_t>(event.weight)};
  count(kind, block, 1);
  for (RecordedSums* const sums : {static_cast<RecordedSums*>(&kind), static_cast<RecordedSums*>(&uses_[use])}) {
    sums->allocations += block.weighted_blocks();
    add(sums->allocated_bytes, block.weighted_bytes());
  }
}

// The bytes that it grows by count as allocated.
void RecordedMemory::resize(RecordedKind& kind, Block& block, Count bytes) {
  const Count before = block.weighted_bytes();
  count(kind, block, -1);
  block.bytes = bytes;
  count(kind, block, 1);
  const Count after = block.weighted_bytes();
  if (after <= before) return;
  add(kind.allocated_bytes, after - before);
  add(uses_[block.use].allocated_bytes, after - before);
}

void RecordedMemory::count(RecordedKind& kind, const Block& block, int sign) {
  const Count blocks = block.weighted_blocks(), bytes = block.weighted_bytes();
  for (RecordedSums* const sums : {static_cast<RecordedSums*>(&kind), static_cast<RecordedSums*>(&uses_[block.use])}) {
    if (sign < 0) {
      sums->blocks -= blocks, sums->bytes -= bytes;
    } else {
      sums->blocks += blocks;
      add(sums->bytes, bytes);
    }
  }
}

std::uint32_t RecordedMemory::use_of(const RecordedEvent& event) {
  const Count key = Count{event.kind} << 32 | event.site;
  std::uint32_t& known = known_[mixed(key) % known_.size()];
  if (known != kNone && uses_[known].kind == event.kind && uses_[known].site == event.site) return known;
  const auto [at, is_new] = use_ids_.try_emplace(key, static_cast<std::uint32_t>(uses_.size()));
  if (is_new) {
    if (uses_.size() == kUsesMax) throw BadReport("has more call sites than can be shown");
    uses_.push_back({{}, event.kind, event.site});
  }
  return known = at->second;
}

// --- The table
std::size_t RecordedMemory::place_of(Count kind, Count address) const {
  return mixed(address ^ kind << 48) & (slots_.size() - 1);
}

std::size_t RecordedMemory::slot_of(Count kind, Count address) const {
  std::size_t at = place_of(kind, address);
  while (slots_[at].use != kNone && (slots_[at].address != address || uses_[slots_[at].use].kind != kind))
    at = (at + 1) & (slots_.size() - 1);
  return at;
}

// Blocks behind it move up, so that none is behind a free slot that a search for it meets.
void RecordedMemory::erase(std::size_t at) {
  const std::size_t mask = slots_.size() - 1;
  --blocks_;
  for (std::size_t next = at;;) {
    next = (next + 1) & mask;
    const Block& block = slots_[next];
    if (block.use == kNone) break;
    const std::size_t place = place_of(uses_[block.use].kind, block.address);
    if (((next - place) & mask) < ((next - at) & mask)) continue;
    slots_[at] = block;
    at = next;
  }
  slots_[at].use = kNone;
}

void RecordedMemory::grow() {
  if (blocks_ == kBlocksMax) throw BadReport("has more live blocks than can be shown");
  std::vector<Block> before(2 * slots_.size());
  before.swap(slots_);
  for (const Block& block : before)
    if (block.use != kNone) slots_[slot_of(uses_[block.use].kind, block.address)] = block;
}

}  // namespace cistern::formats
