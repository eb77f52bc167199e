// A pool that cuts blocks out of large segments and joins what is freed: for memory that comes whole (pinned memory, a
// driver that cannot map pieces). The interface is that of RangePool.
//
//   allocate -> exact fit, or one fence is asked first; best fit among what this order of work may use
//            -> all fences that have settled: what they held is for any work now; again
//            -> grow: a free extent between blocks of other sizes, where the bound allows no more
//                     -> empty segments go back until the bound allows a new segment
//                     -> out of memory: every empty segment goes back, those too that other threads find out about or
//                        are giving back at that moment; and again
//   deallocate -> joined with its neighbours in the segment
//   reserve -> a segment for so many blocks, or several where memory is short
//   retire -> its addresses are not used again before its segment has gone back
//   trim -> empty segments go back; trim_unsettled -> those too that work may still use
//
// Segments have multiples of 2 MiB, but where memory is short. The bound: segments stay below `percent_max` of the most
// that was needed (range_pool.hpp), or one small segment above it. Empty segments are kept below it. The source is
// never called under the lock.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "pool/ranges/cut_pool.hpp"
#include "pool/source.hpp"

namespace cistern::ranges {

// Addresses are multiples of kGranule. Fence: what must end before others may use a block. All calls are thread-safe,
// and none is made under a pool's lock. release() returns when no work of the driver uses the memory any more.
template <class S>
concept SegmentSource = requires(S& source, typename S::Error error, typename S::Fence& fence, std::uint64_t number,
                                 Shortage shortage) {
  { source.acquire(number, shortage) } -> std::same_as<Acquired<std::uint64_t, typename S::Error>>;  // bytes
  { source.release(number) } -> std::same_as<void>;                                                  // address
  { source.settled(fence) } -> std::same_as<Settled>;
  { source.out_of_memory(error) } -> std::same_as<bool>;
};

struct SegmentSettings {
  unsigned percent_max = 108;
  bool reuse_in_order = true;  // work may use what work of the same order freed, before the fence has settled
};

struct SegmentFigures : BlockFigures {
  std::uint64_t used_peak, mapped_bytes, mapped_peak, largest_free;  // mapped: in segments
  std::uint64_t segments, retired_bytes, acquires, releases;
  std::uint64_t driver_calls() const { return acquires + releases; }
};

template <SegmentSource S>
class SegmentPool : public CutPool<S> {
  using Base = CutPool<S>;
  using Base::blocks_;
  using Base::lock_;
  using Base::note_used;
  using Base::source_;
  using Base::take;
  using Base::take_anywhere;
  using Base::used_peak_;
  using typename Base::Returning;

 public:
  using Base::settle;
  using typename Base::Answer;
  using typename Base::Error;
  using typename Base::Fence;

  SegmentPool(S& source, const SegmentSettings& settings)
      : Base(source, settings.reuse_in_order), settings_(settings) {}
  // No block is live any more, and no work uses the memory.
  ~SegmentPool() {
    {
      Locked hold(lock_);
      blocks_.end();
    }
    trim(0);
  }

  // For work of this order; kAnyOrder: for work that waits for nothing.
  Answer allocate(std::uint64_t bytes, Order order) {
    if (bytes < kHuge) bytes = Blocks<Fence>::rounded(bytes);
    if (const Answer answer = take(bytes, order); answer.ok) return answer;
    for (int tries = 0;; ++tries) {
      const Answer answer = grow(bytes, order, tries > 0);
      if (answer.ok || !source_.out_of_memory(answer.error) || tries == kTriesMax) return answer;
      trim(0, Asked::wait);
      this->wait_for_returns();
    }
  }

  // Free memory for so many blocks, beyond what is free. The first error; what could be had stays then.
  Error reserve(std::uint64_t bytes, std::uint64_t count) {
    if (bytes < kHuge) bytes = Blocks<Fence>::rounded(bytes);
    Vector<Extent*> made;  // busy: none makes room for the next one
    Error error{};
    for (std::uint64_t left = count, blocks = count; left;) {
      blocks = std::min(blocks, left);
      std::uint64_t all = 0;
      const std::uint64_t segment = __builtin_mul_overflow(bytes, blocks, &all) ? kHuge : rounded(all);
      const auto acquired = source_.acquire(segment, Shortage::makes_room);
      Locked hold(lock_);
      ++figures_.acquires;
      if (acquired.ok) {
        made.push_back(add(acquired.chunk, segment, Blocks<Fence>::zone_of(bytes)));
        left -= blocks;
      } else if (blocks == 1 || !source_.out_of_memory(acquired.error)) {
        error = acquired.error;
        break;
      } else {
        blocks /= 2;
      }
    }
    Locked hold(lock_);
    for (Extent* const each : made) blocks_.zone(*each).set(each, State::free);
    note_used(figures_.mapped_bytes);  // as needed, or a growth would give it back
    return error;
  }

  // In place of deallocate(), for a block that others may know by its address (it was exported): no block lies there
  // before its segment has gone back, with the last block in it. False: no live block begins there.
  bool retire(std::uint64_t first) {
    const Returning returning(*this);
    Vector<std::uint64_t> empty;
    {
      Locked hold(lock_);
      Extent* const extent = blocks_.forget_live(first);
      if (!extent) return false;
      figures_.retired_bytes += extent->bytes;
      blocks_.zone(*extent).set(extent, State::retired);
      Segment& segment = segment_of(first);
      segment.retired = extent;
      if (is_unused(segment)) empty.push_back(forgotten(freed(front_of(extent))));
    }
    release(empty);
    return true;
  }

  // Gives empty segments back, as long as segments keep so many bytes. Returns the bytes given back.
  std::uint64_t trim(std::uint64_t keep_bytes, Asked asked = Asked::skip) {
    settle(asked);
    const Returning returning(*this);
    Vector<std::uint64_t> empty, retired;
    std::uint64_t bytes = 0;
    {
      Locked hold(lock_);
      const std::uint64_t before = figures_.mapped_bytes;
      retired = take_retired();
      if (figures_.mapped_bytes > keep_bytes) empty = take_empty(figures_.mapped_bytes - keep_bytes, true);
      bytes = before - figures_.mapped_bytes;
    }
    release(retired);
    release(empty);
    return bytes;
  }

  // Gives back every segment without a live block, while no fence can be asked: the source's release() waits for work
  // that may still use it.
  std::uint64_t trim_unsettled() {
    const Returning returning(*this);
    Vector<std::uint64_t> taken;
    std::uint64_t bytes = 0;
    {
      Locked hold(lock_);
      bytes = figures_.mapped_bytes;
      Vector<Extent*> fronts;
      for (Extents& extents : blocks_.zones())
        extents.for_each_free([&](Extent& extent) {
          if (!extent.before && has_no_block(&extent)) fronts.push_back(&extent);
        });
      for (const auto& [first, segment] : segments_)
        if (segment.retired && front_of(segment.retired)->state == State::retired)
          if (Extent* const front = front_of(segment.retired); has_no_block(front)) fronts.push_back(front);
      for (Extent* const front : fronts) taken.push_back(forgotten(freed(front)));
      bytes -= figures_.mapped_bytes;
    }
    release(taken);
    return bytes;
  }

  // Address and bytes of each segment.
  Vector<std::pair<std::uint64_t, std::uint64_t>> segments() {
    Vector<std::pair<std::uint64_t, std::uint64_t>> now;
    Locked hold(lock_);
    for (const auto& [first, segment] : segments_) now.emplace_back(first, segment.bytes);
    return now;
  }

  SegmentFigures figures() {
    Locked hold(lock_);
    SegmentFigures now = figures_;
    static_cast<BlockFigures&>(now) = blocks_.figures();
    now.largest_free = blocks_.largest_free();
    now.used_peak = used_peak_;
    now.segments = segments_.size();
    return now;
  }

 private:
  static constexpr int kTriesMax = 2;
  static constexpr std::uint64_t kSegmentMin = std::uint64_t{2} << 20, kHuge = std::uint64_t{1} << 62;
  // A new segment has room for more blocks of the size, up to so much of what is used and as far as the bound allows.
  static constexpr std::uint64_t kMorePart = 16;

  struct Segment {
    std::uint64_t bytes;
    Extent* retired = nullptr;  // one of the blocks in it that were retired
  };
  using Segments =
      std::map<std::uint64_t, Segment, std::less<>, InternalAllocator<std::pair<const std::uint64_t, Segment>>>;

  static std::uint64_t rounded(std::uint64_t bytes) {
    return bytes < kHuge ? (bytes + kSegmentMin - 1) / kSegmentMin * kSegmentMin : bytes;
  }
  Segment& segment_of(std::uint64_t address) { return std::prev(segments_.upper_bound(address))->second; }

  // `exact`: memory is short, so the segment has no more than the block's own bytes.
  Answer grow(std::uint64_t bytes, Order order, bool exact) {
    std::uint64_t segment = exact ? bytes : rounded(bytes), more = 0;
    if (const Answer answer = make_way(segment, &more, bytes, order, exact); answer.ok) return answer;
    auto acquired = source_.acquire(segment + more, more ? Shortage::refuses : Shortage::makes_room);
    const bool again = !acquired.ok && more;
    if (again) acquired = source_.acquire(segment, Shortage::makes_room);
    if (!again) segment += more;
    Locked hold(lock_);
    figures_.acquires += again ? 2 : 1;
    if (!acquired.ok) return {0, acquired.error, false, false};
    Extent* const all = add(acquired.chunk, segment, Blocks<Fence>::zone_of(bytes));
    Extents& extents = blocks_.zone(*all);
    const Extent* const block = blocks_.hand_out(extents.cut(extents.set(all, State::free), acquired.chunk, bytes));
    note_used(blocks_.needed_bytes());
    return {block->first, {}, true, false};
  }
  // Under the lock: a new segment, which is busy.
  Extent* add(std::uint64_t first, std::uint64_t bytes, std::size_t zone) {
    figures_.mapped_bytes += bytes;
    figures_.mapped_peak = std::max(figures_.mapped_peak, figures_.mapped_bytes);
    segments_[first] = {bytes};
    segment_min_ = std::min(segment_min_, bytes);
    return blocks_.zones()[zone].add(first, bytes, zone);
  }
  // Empty segments go back until the bound allows the new one. `*more`: what it may have for more blocks, if there is
  // room. Or the block itself, out of a free extent between others, where the bound allows no segment.
  Answer make_way(std::uint64_t segment, std::uint64_t* more, std::uint64_t bytes, Order order, bool exact) {
    const Returning returning(*this);
    Vector<std::uint64_t> empty;
    {
      Locked hold(lock_);
      const std::uint64_t used = std::max(used_peak_, blocks_.needed_bytes() + (bytes < kHuge ? bytes : 0));
      if (exact || figures_.mapped_bytes + segment > bytes_max(used))
        if (const Answer answer = take_anywhere(bytes, order); answer.ok) return answer;
      if (!exact) *more = more_than(segment, used);
      const std::uint64_t wanted = figures_.mapped_bytes + std::min(segment + *more, kHuge);
      if (wanted > bytes_max(used)) empty = take_empty(wanted - bytes_max(used));
    }
    release(empty);
    return {};
  }
  // The most that segments may have, where so much is used at most.
  std::uint64_t bytes_max(std::uint64_t used) const {
    return std::max(used / 100 * settings_.percent_max + used % 100 * settings_.percent_max / 100, used + kSegmentMin);
  }
  std::uint64_t more_than(std::uint64_t segment, std::uint64_t used) const {
    const std::uint64_t mapped = figures_.mapped_bytes + segment;
    if (mapped >= bytes_max(used)) return 0;
    return std::min(bytes_max(used) - mapped, used / kMorePart) / segment * segment;
  }

  // Under the lock: empty segments of so many bytes leave the pool, at least or at most, the largest first.
  Vector<std::uint64_t> take_empty(std::uint64_t bytes, bool at_most = false) {
    Vector<std::uint64_t> taken;
    std::uint64_t found = 0;
    for (Extents& extents : blocks_.zones())
      for (Extent* at = extents.free().largest(); at && at->bytes >= segment_min_ && found < bytes;) {
        Extent* const next = extents.free().next_smaller(*at);
        if (!at->before && !at->after && (!at_most || at->bytes <= bytes - found)) {
          found += at->bytes;
          taken.push_back(forgotten(at));
        }
        at = next;
      }
    return taken;
  }
  // An empty segment leaves the pool: its address.
  std::uint64_t forgotten(Extent* extent) {
    const std::uint64_t first = extent->first;
    figures_.mapped_bytes -= extent->bytes;
    segments_.erase(first);
    Extents& extents = blocks_.zone(*extent);
    extents.remove(extents.cut(extent, first, extent->bytes));
    return first;
  }
  void release(const Vector<std::uint64_t>& segments) {
    if (segments.empty()) return;
    for (const std::uint64_t first : segments) source_.release(first);
    Locked hold(lock_);
    figures_.releases += segments.size();
  }

  // --- Retired blocks. All under the lock.
  // Segments with nothing but retired blocks and free bytes leave the pool.
  Vector<std::uint64_t> take_retired() {
    Vector<Extent*> unused;
    for (const auto& [first, segment] : segments_)
      if (segment.retired && is_unused(segment)) unused.push_back(front_of(segment.retired));
    Vector<std::uint64_t> taken;
    for (Extent* const front : unused) taken.push_back(forgotten(freed(front)));
    return taken;
  }
  static Extent* front_of(Extent* extent) {
    while (extent->before) extent = extent->before;
    return extent;
  }
  static bool is_unused(const Segment& segment) {
    for (const Extent* at = front_of(segment.retired); at; at = at->after)
      if (at->state != State::retired && (at->state != State::free || at->order != kAnyOrder)) return false;
    return true;
  }
  static bool has_no_block(const Extent* at) {
    while (at && (at->state == State::free || at->state == State::retired)) at = at->after;
    return !at;
  }
  // A segment without blocks becomes one free extent.
  Extent* freed(Extent* at) {
    for (;; at = at->after) {
      if (at->state == State::retired) figures_.retired_bytes -= at->bytes;
      at = blocks_.zone(*at).set(at, State::free);
      if (!at->after) return at;
    }
  }

  const SegmentSettings settings_;
  Segments segments_;
  std::uint64_t segment_min_ = kSegmentMin;  // there was none smaller
  SegmentFigures figures_{};
};

}  // namespace cistern::ranges
