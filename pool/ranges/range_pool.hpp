// A pool that cuts blocks out of one range of addresses, joins what is freed, and maps physical memory only where
// blocks lie.
//
//   allocate -> best fit among what this order of work may use, else among what any work may use
//            -> fences that have settled: what they held is for any work now; again
//            -> grow: a window of addresses where the fewest bytes are bare
//                     -> more memory than the bound: pieces without a live block are moved there, else new ones
//                     -> out of memory: every piece without a live block goes back, and again
//   deallocate -> joined with its neighbours of the same order
//   trim -> pieces without a live block go back
//
// The bound: mapped memory stays below `percent_max` of the most that was used, but for one piece of the driver's
// granularity. Memory is used while it is live or its fence has not settled. A piece under a live block never moves,
// nor one that was pinned (a graph captured it, it was registered or exported).
//
// Small blocks lie at the range's begin, large ones from its middle on: a small one that lives long would keep a hole
// between large ones from being moved.
//
// The source is never called under the lock: what it works on is busy meanwhile.
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "pool/base/lock.hpp"
#include "pool/ranges/extents.hpp"
#include "pool/ranges/range_source.hpp"

namespace cistern::ranges {

struct RangeSettings {
  std::uint64_t first, bytes;  // the range
  unsigned percent_max = 105;
  std::uint64_t small_max = std::uint64_t{1} << 20;
  unsigned pieces_min = 16;    // the largest piece is that part of what is live
  bool reuse_in_order = true;  // work may use what work of the same order freed, before the fence has settled
};

struct RangeFigures {
  std::uint64_t live_bytes, live_blocks, live_peak, used_peak, mapped_bytes, mapped_peak, largest_free;
  std::uint64_t allocations, hits, moved, creates, maps, accesses, unmaps, destroys, lost_bytes;
  std::uint64_t driver_calls() const { return creates + maps + accesses + unmaps + destroys; }
};

template <RangeSource S>
class RangePool {
 public:
  using Handle = typename S::Handle;
  using Error = typename S::Error;
  using Fence = typename S::Fence;
  static constexpr std::uint64_t kGranule = 512;

  struct Answer {
    std::uint64_t first;
    Error error;
    bool ok, hit;
  };

  RangePool(S& source, const RangeSettings& settings)
      : source_(source),
        settings_(settings),
        piece_(source.granularity()),
        middle_(settings.first + settings.bytes / 2 / piece_ * piece_),
        small_(settings.first, middle_ - settings.first, settings.reuse_in_order),
        large_(middle_, settings.first + settings.bytes - middle_, settings.reuse_in_order) {}
  RangePool(const RangePool&) = delete;
  RangePool& operator=(const RangePool&) = delete;
  // No block is live any more, and no work uses the memory.
  ~RangePool() { end(); }

  // For work of this order; kAnyOrder: for work that waits for nothing.
  Answer allocate(std::uint64_t bytes, Order order) {
    if (bytes > settings_.bytes) return {0, source_.no_addresses(), false, false};
    bytes = std::max(round_up(bytes, kGranule), kGranule);
    for (bool looked = false;; looked = true) {
      if (const std::optional<std::uint64_t> first = take(bytes, order)) return {*first, {}, true, true};
      if (looked || !settle()) break;
    }
    for (int tries = 0;; ++tries) {
      const Answer answer = grow(bytes, order);
      if (answer.ok || !source_.out_of_memory(answer.error) || tries == kTriesMax || !trim(0)) return answer;
    }
  }

  // `waits`: the fence has to settle before other work than this order's may use the memory. Fences of one order settle
  // in that order; kNoOrder: of work in several. False: no live block begins there.
  bool deallocate(std::uint64_t first, Order order, Fence&& fence, bool waits) {
    Locked hold(lock_);
    const auto found = live_.find(first);
    if (found == live_.end()) return false;
    Extent* const extent = found->second;
    live_.erase(found);
    --figures_.live_blocks;
    figures_.live_bytes -= extent->bytes;
    if (waits) {
      Work& work = work_[order];
      work.fences.push_back({++stamp_, std::move(fence)});
      extents_of(first).set(extent, State::free, order, stamp_);
    } else {
      extents_of(first).set(extent, State::free);
    }
    return true;
  }

  // Extents whose fences have settled by now become free for all work. False: there were none.
  bool settle() {
    bool any = false;
    for (std::optional<Order> order = order_with_fences(0); order && *order != kNoOrder;
         order = order_with_fences(*order + 1))
      any |= settle(*order);
    return settle_unordered() | any;
  }

  // The memory under this live block does not move, even when it is freed.
  void pin(std::uint64_t first) {
    Locked hold(lock_);
    const auto found = live_.find(first);
    if (found == live_.end()) return;
    for (auto piece = piece_at(first); piece != pieces_.end() && piece->first < found->second->end(); ++piece)
      piece->second.pinned = true;
  }

  // The block must never be used again.
  void retire(std::uint64_t first) { pin(first); }

  // Access to all that is mapped is asked for once more: it has changed. The first error.
  Error allow_access_again() {
    Vector<std::pair<std::uint64_t, std::uint64_t>> mapped;
    {
      Locked hold(lock_);
      for (const auto& [first, piece] : pieces_) mapped.push_back({first, piece.bytes});
    }
    Error answer{};
    for (const auto& [first, bytes] : mapped) {
      count(figures_.accesses);
      const Error error = source_.allow_access(first, bytes);
      if (source_.failed(error) && !source_.failed(answer)) answer = error;
    }
    return answer;
  }

  // What is mapped can be compared with what was used since then: the bound forgets what was used before.
  void forget_peak() {
    Locked hold(lock_);
    figures_.used_peak = figures_.live_bytes + small_.waiting_bytes() + large_.waiting_bytes();
  }

  // Calls visit(extent) for each free extent, under the lock. It takes as long as there are extents.
  template <class Visit>
  void for_each_free(Visit visit) {
    Locked hold(lock_);
    for (const Extents* extents : {&small_, &large_})
      for (const Extent* at = extents->front(); at; at = at->after)
        if (at->state == State::free) visit(*at);
  }

  // What is mapped and has no live block.
  struct Unused {
    std::uint64_t waiting_bytes = 0;      // until their fences settle
    std::uint64_t reclaimable_bytes = 0;  // trim(0) would give them back now
  };
  Unused unused() {
    Unused sum;
    for_each_free([&](const Extent& free) {
      if (free.order != kAnyOrder) return void(sum.waiting_bytes += free.bytes);
      for (auto piece = pieces_.lower_bound(free.first);
           piece != pieces_.end() && piece->first + piece->second.bytes <= free.end(); ++piece)
        if (!piece->second.pinned) sum.reclaimable_bytes += piece->second.bytes;
    });
    return sum;
  }

  // Every block is gone, and no work uses the memory: all of it goes back.
  void end() {
    {
      Locked hold(lock_);
      for (const auto& [first, extent] : live_) extents_of(first).set(extent, State::free);
      live_.clear();
      work_.clear();
      figures_.live_blocks = figures_.live_bytes = 0;
      for (auto& [first, piece] : pieces_) piece.pinned = false;
      for (Extents* extents : {&small_, &large_}) extents->settle_all();
    }
    trim(0);
  }

  // Gives memory back until so much is mapped, as far as none of it is in use. Returns the bytes given back.
  std::uint64_t trim(std::uint64_t keep_bytes) {
    settle();
    Growth none;
    {
      Locked hold(lock_);
      if (figures_.mapped_bytes > keep_bytes) move_out(none, figures_.mapped_bytes - keep_bytes);
    }
    std::uint64_t given_back = 0;
    for (Run& run : none.runs)
      if (unmap(run, none)) given_back += run.extent->bytes;
    destroy(none.spare);
    Locked hold(lock_);
    put_back(none);
    return given_back;
  }

  RangeFigures figures() {
    Locked hold(lock_);
    RangeFigures now = figures_;
    for (const Extents* extents : {&small_, &large_})
      if (const BySize* const free = extents->free_of(kAnyOrder))
        now.largest_free = std::max(now.largest_free, free->largest()->bytes);
    return now;
  }

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }

 private:
  static constexpr int kTriesMax = 3, kLooksMax = 64;

  struct Piece {
    std::uint64_t bytes;
    Handle handle;
    bool pinned;
  };
  using Pieces = std::map<std::uint64_t, Piece, std::less<>, InternalAllocator<std::pair<const std::uint64_t, Piece>>>;
  struct Waiting {
    std::uint64_t stamp;
    Fence fence;
  };
  struct Work {
    Deque<Waiting> fences;
    bool is_asked = false;  // a thread asks the source for one of them
  };
  struct Spare {
    std::uint64_t bytes;
    Handle handle;
  };
  // Pieces side by side that are moved away.
  struct Run {
    Extent* extent;
    Vector<std::pair<std::uint64_t, Piece>> pieces;
    bool unmapped = false;
  };
  // The work of one thread that needs a block where none fits. All its extents are busy.
  struct Growth {
    Extent *part = nullptr, *bare = nullptr;  // `part`: memory beside the bare one that the block uses, too
    Order part_order = kAnyOrder;
    std::uint64_t part_stamp = 0;
    std::uint64_t first = 0;  // of the block
    std::uint64_t most = 0;   // bytes of a piece
    Vector<Run> runs;
    Vector<Spare> spare;
    Vector<std::pair<std::uint64_t, Piece>> pieces;  // mapped by it
  };
  struct Window {
    Extent *part = nullptr, *bare = nullptr;
    std::uint64_t bytes_missing = ~std::uint64_t{0};
  };

  bool may_use_waiting(Order order) const {
    return settings_.reuse_in_order && order != kAnyOrder && order != kNoOrder;
  }
  static std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }
  Extents& extents_of(std::uint64_t first) { return first < middle_ ? small_ : large_; }
  Extents& extents_for(std::uint64_t bytes) { return bytes < settings_.small_max ? small_ : large_; }

  // The piece that the address lies in, or the first one behind it.
  typename Pieces::iterator piece_at(std::uint64_t address) {
    auto piece = pieces_.upper_bound(address);
    if (piece != pieces_.begin() && std::prev(piece)->first + std::prev(piece)->second.bytes > address) --piece;
    return piece;
  }

  std::optional<std::uint64_t> take(std::uint64_t bytes, Order order) {
    Locked hold(lock_);
    Extents& extents = extents_for(bytes);
    Extent* extent = may_use_waiting(order) ? extents.best_fit(bytes, order) : nullptr;
    Extent* const of_any = extents.best_fit(bytes, kAnyOrder);
    if (!extent || (of_any && of_any->bytes < extent->bytes)) extent = of_any;
    if (!extent) return std::nullopt;
    ++figures_.hits;
    return hand_out(extents, extents.cut(extent, extent->first, bytes));
  }

  std::uint64_t hand_out(Extents& extents, Extent* extent) {
    extents.set(extent, State::live);
    live_[extent->first] = extent;
    ++figures_.allocations;
    ++figures_.live_blocks;
    figures_.live_bytes += extent->bytes;
    figures_.live_peak = std::max(figures_.live_peak, figures_.live_bytes);
    return extent->first;
  }

  // --- Fences
  std::optional<Order> order_with_fences(Order from) {
    Locked hold(lock_);
    std::optional<Order> next;
    for (const auto& [order, work] : work_)
      if (order >= from && !work.fences.empty() && !work.is_asked && (!next || order < *next)) next = order;
    return next;
  }

  // The newest first: if that has settled all have.
  bool settle(Order order) {
    bool any = false;
    for (bool newest = true;; newest = false) {
      Waiting waiting;
      {
        Locked hold(lock_);
        Work& work = work_[order];
        if (work.fences.empty() || (newest && work.is_asked)) return any;
        work.is_asked = true;
        waiting = std::move(newest ? work.fences.back() : work.fences.front());
      }
      const Settled settled = source_.settled(waiting.fence);
      Deque<Waiting> ended;  // outlives the lock: fences may ask the driver when they go
      Locked hold(lock_);
      Work& work = work_[order];
      // Others may have added newer ones at the end.
      const auto at = std::find_if(work.fences.begin(), work.fences.end(),
                                   [&](const Waiting& other) { return other.stamp == waiting.stamp; });
      if (settled == Settled::no) {
        at->fence = std::move(waiting.fence);
        if (newest && work.fences.size() > 1) continue;
        work.is_asked = false;
        return any;
      }
      const auto first = newest && settled == Settled::yes ? work.fences.begin() : at;
      ended.assign(std::make_move_iterator(first), std::make_move_iterator(at + 1));
      work.fences.erase(first, at + 1);
      // A fence that cannot be asked any more says nothing: its extents stay with their order.
      if (settled == Settled::yes) {
        for (Extents* extents : {&small_, &large_}) extents->settle(order, waiting.stamp);
        any = true;
      }
      if (!work.fences.empty() && !newest) continue;
      work.is_asked = false;
      return any;
    }
  }

  // Each is asked by itself, once; those that have not settled go to the end.
  bool settle_unordered() {
    bool any = false;
    std::size_t left = ~std::size_t{0};
    for (;; --left) {
      Waiting waiting;
      {
        Locked hold(lock_);
        Deque<Waiting>& fences = work_[kNoOrder].fences;
        left = std::min(left, fences.size());
        if (!left) return any;
        waiting = std::move(fences.front());
        fences.pop_front();
      }
      const Settled settled = source_.settled(waiting.fence);
      Locked hold(lock_);
      if (settled == Settled::no) {
        work_[kNoOrder].fences.push_back(std::move(waiting));
        continue;
      }
      if (settled != Settled::yes) continue;
      any = true;
      for (Extents* extents : {&small_, &large_}) extents->settle_one(waiting.stamp);
    }
  }

  // --- Growth
  Window window(Extents& extents, std::uint64_t bytes, Order order) {
    Window best;
    const auto consider = [&](Extent* part, Extent* bare) {
      if (!bare || bare->state != State::bare) return;
      const std::uint64_t missing = round_up(bytes - part->bytes, piece_);
      if (missing <= bare->bytes && missing < best.bytes_missing) best = {part, bare, missing};
    };
    for (const Order usable : {order, kAnyOrder}) {
      const BySize* const free = usable == kAnyOrder || may_use_waiting(usable) ? extents.free_of(usable) : nullptr;
      int looks = 0;
      for (Extent* part = free ? free->largest() : nullptr; part && looks < kLooksMax; ++looks) {
        if (part->bytes < bytes) {
          consider(part, part->after);
          consider(part, part->before);
        }
        part = free->next_smaller(*part);
      }
      if (order == kAnyOrder) break;
    }
    const std::uint64_t missing = round_up(bytes, piece_);
    if (missing < best.bytes_missing)
      if (Extent* const bare = extents.bare_fit(missing)) best = {nullptr, bare, missing};
    return best;
  }

  std::uint64_t bytes_max(std::uint64_t live) const {
    const std::uint64_t part = live / 100 * settings_.percent_max + live % 100 * settings_.percent_max / 100;
    return std::max(part, round_up(live, piece_) + piece_);
  }

  // Under the lock. False: no address is left.
  bool plan(Growth& growth, Extents& extents, std::uint64_t bytes, Order order) {
    const Window where = window(extents, bytes, order);
    if (!where.bare) return false;
    const std::uint64_t used = figures_.live_bytes + bytes + small_.waiting_bytes() + large_.waiting_bytes();
    figures_.used_peak = std::max(figures_.used_peak, used);
    const std::uint64_t live = figures_.used_peak;
    const std::uint64_t limit = bytes_max(live);
    growth.most = piece_;
    while (growth.most * 2 * settings_.pieces_min <= live) growth.most *= 2;
    std::uint64_t missing = where.bytes_missing;
    const bool is_behind = !where.part || where.part == where.bare->before;
    // At the end of what was ever used, where nothing lies behind: a little more, so that the next one need not grow.
    if (!where.bare->after && is_behind && figures_.mapped_bytes + missing < limit) {
      const std::uint64_t more =
          std::min({limit - figures_.mapped_bytes - missing, live / 64, where.bare->bytes - missing});
      missing += more / piece_ * piece_;
    }
    if (where.part) {
      growth.part = where.part;
      growth.part_order = where.part->order;
      growth.part_stamp = where.part->stamp;
      extents.cut(where.part, where.part->first, where.part->bytes);
    }
    growth.bare = extents.cut(where.bare, is_behind ? where.bare->first : where.bare->end() - missing, missing);
    growth.first = !growth.part ? growth.bare->first : is_behind ? growth.part->first : growth.part->end() - bytes;
    figures_.mapped_bytes += missing;
    if (figures_.mapped_bytes > limit) move_out(growth, figures_.mapped_bytes - limit);
    figures_.mapped_peak = std::max(figures_.mapped_peak, figures_.mapped_bytes);
    return true;
  }

  // Under the lock: marks runs of pieces that hold at least so much, those in the largest extents first.
  void move_out(Growth& growth, std::uint64_t bytes) {
    std::uint64_t found = 0;
    for (Extents* extents : {&large_, &small_}) {
      const BySize* const free = extents->free_of(kAnyOrder);
      for (Extent* at = free ? free->largest() : nullptr; at && at->bytes >= piece_ && found < bytes;) {
        const Extent key = *at;
        move_out_of(growth, *extents, at, bytes, found);
        const BySize* const left = extents->free_of(kAnyOrder);
        at = left ? left->next_smaller(key) : nullptr;
      }
    }
    figures_.mapped_bytes -= found;
  }
  void move_out_of(Growth& growth, Extents& extents, Extent* extent, std::uint64_t bytes, std::uint64_t& found) {
    auto piece = pieces_.lower_bound(extent->first);
    const auto fits = [&] { return piece != pieces_.end() && piece->first + piece->second.bytes <= extent->end(); };
    while (fits() && piece->second.pinned) ++piece;
    Run run{};
    const std::uint64_t first = fits() ? piece->first : 0;
    std::uint64_t length = 0;
    while (fits() && !piece->second.pinned && found < bytes) {
      run.pieces.push_back(*piece);
      length += piece->second.bytes;
      found += piece->second.bytes;
      piece = pieces_.erase(piece);
    }
    if (!length) return;
    run.extent = extents.cut(extent, first, length);
    growth.runs.push_back(std::move(run));
  }

  // Its pieces are spare then.
  bool unmap(Run& run, Growth& growth) {
    count(figures_.unmaps);
    run.unmapped = !source_.failed(source_.unmap(run.extent->first, run.extent->bytes));
    if (run.unmapped)
      for (const auto& [first, piece] : run.pieces) growth.spare.push_back({piece.bytes, piece.handle});
    return run.unmapped;
  }
  void destroy(Vector<Spare>& spare) {
    for (const Spare& one : spare) source_.destroy(one.handle);
    count(figures_.destroys, spare.size());
    spare.clear();
  }

  // Under the lock: what was moved out is bare now, or still there where it could not be unmapped.
  void put_back(Growth& growth) {
    for (Run& run : growth.runs) {
      if (!run.unmapped) {
        pieces_.insert(run.pieces.begin(), run.pieces.end());
        figures_.mapped_bytes += run.extent->bytes;
      }
      extents_of(run.extent->first).set(run.extent, run.unmapped ? State::bare : State::free);
    }
    figures_.mapped_peak = std::max(figures_.mapped_peak, figures_.mapped_bytes);
  }

  // One that was moved out and is as large as is wanted, or the largest that is not larger; else a new one.
  Acquired<Spare, Error> next_piece(Growth& growth, std::uint64_t bytes) {
    auto best = growth.spare.end();
    for (auto spare = growth.spare.begin(); spare != growth.spare.end(); ++spare)
      if (spare->bytes <= bytes && (best == growth.spare.end() || spare->bytes > best->bytes)) best = spare;
    if (best != growth.spare.end()) {
      const Spare piece = *best;
      growth.spare.erase(best);
      count(figures_.moved);
      return {piece, {}, true};
    }
    const std::uint64_t most = std::min(bytes, growth.most);
    count(figures_.creates);
    const auto made = source_.create(most);
    return {{most, made.chunk}, made.error, made.ok};
  }

  Error fill(Growth& growth) {
    const std::uint64_t first = growth.bare->first, end = growth.bare->end();
    for (std::uint64_t at = first; at < end;) {
      const auto piece = next_piece(growth, end - at);
      if (!piece.ok) return piece.error;
      count(figures_.maps);
      if (const Error error = source_.map(at, piece.chunk.bytes, piece.chunk.handle); source_.failed(error)) {
        growth.spare.push_back(piece.chunk);
        return error;
      }
      growth.pieces.push_back({at, {piece.chunk.bytes, piece.chunk.handle, false}});
      at += piece.chunk.bytes;
    }
    count(figures_.accesses);
    return source_.allow_access(first, end - first);
  }

  // Memory that could not be unmapped stays as it is, and is lost. Returns its bytes.
  std::uint64_t undo(Growth& growth) {
    std::uint64_t lost = 0;
    for (const auto& [first, piece] : growth.pieces) {
      count(figures_.unmaps);
      if (source_.failed(source_.unmap(first, piece.bytes)))
        lost += piece.bytes;
      else
        growth.spare.push_back({piece.bytes, piece.handle});
    }
    growth.pieces.clear();
    return lost;
  }

  Answer grow(std::uint64_t bytes, Order order) {
    Extents& extents = extents_for(bytes);
    Growth growth;
    {
      Locked hold(lock_);
      if (!plan(growth, extents, bytes, order)) return {0, source_.no_addresses(), false, false};
    }
    for (Run& run : growth.runs) unmap(run, growth);
    const Error error = fill(growth);
    const bool ok = !source_.failed(error);
    const std::uint64_t lost = ok ? 0 : undo(growth);
    destroy(growth.spare);
    Locked hold(lock_);
    put_back(growth);
    if (!ok) {
      figures_.mapped_bytes -= growth.bare->bytes - lost;
      figures_.lost_bytes += lost;
      if (!lost) extents.set(growth.bare, State::bare);
      if (growth.part) extents.set(growth.part, State::free, growth.part_order, growth.part_stamp);
      return {0, error, false, false};
    }
    pieces_.insert(growth.pieces.begin(), growth.pieces.end());
    if (growth.part) extents.set(growth.part, State::free);
    Extent* const all = extents.set(growth.bare, State::free);
    return {hand_out(extents, extents.cut(all, growth.first, bytes)), {}, true, false};
  }

  void count(std::uint64_t& figure, std::uint64_t more = 1) {
    Locked hold(lock_);
    figure += more;
  }

  S& source_;
  const RangeSettings settings_;
  const std::uint64_t piece_, middle_;
  Lock lock_;
  Extents small_, large_;
  Pieces pieces_;
  Map<std::uint64_t, Extent*> live_;
  Map<Order, Work> work_;
  std::uint64_t stamp_ = 0;
  RangeFigures figures_{};
};

}  // namespace cistern::ranges
