// See recording_thinning.hpp. Memory for it is mapped for its time; where there is none, nothing is thinned.
#include "stats/recording_thinning.hpp"

#include <algorithm>
#include <new>

#include "pool/base/internal_memory.hpp"
#include "stats/recording_merge.hpp"

namespace cistern::recording {
namespace {

template <class T>
class Array {
 public:
  explicit Array(std::size_t count) : count_(count), first_(static_cast<T*>(internal_try_allocate(bytes()))) {}
  ~Array() {
    if (first_) internal_deallocate(first_, bytes());
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* data() const { return first_; }

 private:
  std::size_t bytes() const { return std::max<std::size_t>(count_, 1) * sizeof(T); }
  std::size_t count_;
  T* first_;
};

struct LiveBlock {
  std::uint64_t address, bytes, time;
  std::uint32_t site, thread, weight;
  std::uint16_t kind;
  bool is_there;
};

// Open addressing, linear probing.
class LiveBlocks {
 public:
  LiveBlocks() { resize(1024); }
  ~LiveBlocks() { release(); }
  LiveBlocks(const LiveBlocks&) = delete;
  LiveBlocks& operator=(const LiveBlocks&) = delete;

  // False: no memory.
  bool add(const Event& event) {
    if (!table_ || (used_ >= size_ / 4 * 3 && !resize(size_ * 2))) return false;
    LiveBlock& place = place_of(event.kind, event.address);
    used_ += !place.is_there;
    place = {event.address, event.bytes, event.time, event.site, event.thread, static_cast<std::uint32_t>(event.weight),
             event.kind,    true};
    return true;
  }
  // Null: it is not live.
  LiveBlock* find(const Event& event) {
    LiveBlock& place = place_of(event.kind, event.address);
    return place.is_there ? &place : nullptr;
  }
  // Those behind that it had displaced move up.
  void erase(LiveBlock& block) {
    std::size_t hole = static_cast<std::size_t>(&block - table_);
    for (std::size_t at = hole;;) {
      at = (at + 1) & (size_ - 1);
      if (!table_[at].is_there) break;
      const std::size_t from_home = (at - home_of(table_[at].kind, table_[at].address)) & (size_ - 1);
      if (from_home < ((at - hole) & (size_ - 1))) continue;
      table_[hole] = table_[at];
      hole = at;
    }
    table_[hole].is_there = false;
    --used_;
  }
  // The table ends with it.
  std::span<LiveBlock> by_time() {
    LiveBlock* const end = std::partition(table_, table_ + size_, [](const LiveBlock& one) { return one.is_there; });
    // No recursion: the program's stack may be small.
    const auto is_earlier = [](const LiveBlock& a, const LiveBlock& b) { return a.time < b.time; };
    std::make_heap(table_, end, is_earlier);
    std::sort_heap(table_, end, is_earlier);
    return {table_, end};
  }

 private:
  std::size_t home_of(std::uint16_t kind, std::uint64_t address) const {
    return ((address ^ std::uint64_t{kind} << 48) * 0x9E3779B97F4A7C15 >> 20) & (size_ - 1);
  }
  LiveBlock& place_of(std::uint16_t kind, std::uint64_t address) {
    std::size_t at = home_of(kind, address);
    while (table_[at].is_there && (table_[at].address != address || table_[at].kind != kind))
      at = (at + 1) & (size_ - 1);
    return table_[at];
  }
  bool resize(std::size_t size) {
    auto* const larger = static_cast<LiveBlock*>(internal_try_allocate(size * sizeof(LiveBlock)));
    if (!larger) return false;
    for (std::size_t i = 0; i < size; ++i) larger[i].is_there = false;
    LiveBlock* const old = table_;
    const std::size_t old_size = size_;
    table_ = larger;
    size_ = size;
    for (std::size_t i = 0; i < old_size; ++i)
      if (old[i].is_there) place_of(old[i].kind, old[i].address) = old[i];
    if (old) internal_deallocate(old, old_size * sizeof(LiveBlock));
    return true;
  }
  void release() {
    if (table_) internal_deallocate(table_, size_ * sizeof(LiveBlock));
  }

  LiveBlock* table_ = nullptr;
  std::size_t size_ = 0, used_ = 0;
};

// Events into one chunk after the other.
class Output {
 public:
  explicit Output(std::span<ChunkHead* const> into) : into_(into) {}
  bool put(const Event& event) {
    if (chunks_ == 0 || used_ + kEventBytesMax > kRoom) {
      if (chunks_ == into_.size()) return false;
      into_[chunks_++]->first_time = event.time;
      used_ = 0;
      before_ = {.time = event.time};
    }
    ChunkHead& head = *into_[chunks_ - 1];
    auto* const first = reinterpret_cast<std::uint8_t*>(&head + 1);
    used_ = static_cast<std::size_t>(put_event(first + used_, event, before_) - first);
    head.committed.store(static_cast<std::uint32_t>(used_), std::memory_order_relaxed);
    return true;
  }
  std::size_t chunks() const { return chunks_; }

 private:
  const std::span<ChunkHead* const> into_;
  std::size_t chunks_ = 0, used_ = 0;
  Before before_;
};

bool put_live(Output& output, LiveBlocks& live) {
  for (const LiveBlock& block : live.by_time())
    if (!output.put({.type = EventType::allocation,
                     .kind = block.kind,
                     .site = block.site,
                     .thread = block.thread,
                     .time = block.time,
                     .address = block.address,
                     .bytes = block.bytes,
                     .weight = block.weight}))
      return false;
  return true;
}

// Whether the event stays as it is; nothing: no memory. An allocation stays in `live` as long as no free comes.
std::optional<std::uint64_t> drop_early(const Event& event, LiveBlocks& live) {
  if (event.type == EventType::allocation) return live.add(event) ? std::optional<std::uint64_t>(0) : std::nullopt;
  LiveBlock* const block = event.type <= EventType::resized ? live.find(event) : nullptr;
  if (block && event.type == EventType::resized) block->bytes = event.bytes;
  if (!block || event.type != EventType::free) return 1;
  live.erase(*block);
  return 2;
}

}  // namespace

std::optional<Thinned> thin(std::span<ChunkHead* const> batch, std::uint64_t until, std::span<ChunkHead* const> into) {
  const Array<ChunkEvents> chunks(batch.size());
  const Array<ChunkEvents*> waiting(batch.size());
  LiveBlocks live;
  if (!chunks.data() || !waiting.data()) return std::nullopt;
  for (std::size_t i = 0; i < batch.size(); ++i)
    new (chunks.data() + i) ChunkEvents(batch[i]->first_time, {reinterpret_cast<const std::uint8_t*>(batch[i] + 1),
                                                               batch[i]->committed.load(std::memory_order_acquire)});
  Merge merge({chunks.data(), batch.size()}, waiting.data());
  Output output(into);
  std::uint64_t dropped = 0;
  const Event* event = merge.next();
  for (; event && event->time < until; event = merge.next()) {
    const auto more = drop_early(*event, live);
    if (!more) return std::nullopt;
    dropped += *more;
  }
  if (!put_live(output, live)) return std::nullopt;
  for (; event; event = merge.next())
    if (!output.put(*event)) return std::nullopt;
  return Thinned{output.chunks(), dropped};
}

}  // namespace cistern::recording
