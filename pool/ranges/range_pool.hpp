// A pool that cuts blocks out of one range of addresses, joins what is freed, and maps physical memory only where
// blocks lie.
//
//   allocate -> exact fit, or one fence is asked first; best fit among what this order of work may use
//            -> all fences that have settled: what they held is for any work now; again
//            -> grow: a window of addresses where the fewest bytes are bare
//                     -> more memory than the bound: a free extent between blocks of other sizes
//                        -> else pieces without a live block are moved to the window, else new ones
//                     -> out of memory: every piece without a live block goes back, and again
//   deallocate -> joined with its neighbours of the same order
//   retire -> its whole pieces go back, and its addresses are never used again; behind a fence if work may use it
//   trim -> pieces without a live block go back
//
// The bound: mapped memory stays below `percent_max` of the most that was needed, or one piece of the driver's
// granularity above it. Memory is needed while it is live, or while a fence alone makes it free: not where work of its
// order asks for it. A piece under a live block never moves.
//
// The source is never called under the lock: what it works on is busy meanwhile.
#pragma once
#include <algorithm>
#include <utility>

#include "pool/base/lock.hpp"
#include "pool/ranges/cut_pool.hpp"
#include "pool/ranges/pieces.hpp"
#include "pool/ranges/range_source.hpp"

namespace cistern::ranges {

struct RangeSettings {
  // The range: at least four times what may ever be mapped. Large blocks have half of it, so no block is larger;
  // smaller ones have less, and where that is full they lie among others.
  std::uint64_t first, bytes;
  std::uint64_t memory_bytes = ~std::uint64_t{0};  // all that the device has, for other users too
  unsigned percent_max = 104;
  bool reuse_in_order = true;  // work may use what work of the same order freed, before the fence has settled
};

struct RangeFigures : BlockFigures, MapFigures {
  std::uint64_t used_peak, mapped_bytes, mapped_peak, largest_free;
  std::uint64_t retired_bytes;  // of addresses
};

template <RangeSource S>
class RangePool : public CutPool<S> {
  using Base = CutPool<S>;
  using Base::blocks_;
  using Base::lock_;
  using Base::note_used;
  using Base::recent_peak_;
  using Base::source_;
  using Base::take;
  using Base::take_anywhere;
  using typename Base::Returning;

 public:
  using Handle = typename S::Handle;
  using typename Base::Answer;
  using typename Base::Error;
  using typename Base::Fence;
  static constexpr std::uint64_t kGranule = ranges::kGranule;

  RangePool(S& source, const RangeSettings& settings)
      : Base(source, settings.reuse_in_order), settings_(settings), piece_(source.granularity()) {
    std::uint64_t first = settings.first;
    for (std::size_t zone = 0; zone < kZones; ++zone) {
      const std::uint64_t bytes = round_down(settings.bytes >> (kZones - zone));
      Extents& extents = blocks_.zones()[zone];
      extents.set(extents.add(first, bytes, zone), State::bare);
      first += bytes;
    }
  }
  // No block is live any more, and no work uses the memory.
  ~RangePool() { end(); }

  // For work of this order; kAnyOrder: for work that waits for nothing.
  Answer allocate(std::uint64_t bytes, Order order) {
    if (bytes > settings_.bytes) return {0, source_.no_addresses(), false, false};
    bytes = Blocks<Fence>::rounded(bytes);
    if (const Answer answer = take(bytes, order); answer.ok) return answer;
    for (int tries = 0;; ++tries) {
      const Answer answer = grow(bytes, order);
      if (answer.ok || !source_.out_of_memory(answer.error) || tries == kTriesMax) return answer;
      settle(Asked::wait);
      if (const Answer other = take_when_short(bytes, order); other.ok) return other;
      const bool any = trim(0) != 0;
      if (!this->wait_for_returns() && !any) return answer;
    }
  }

  // In place of deallocate(), for a block that others may know by its address (it was exported): no block lies there
  // again. Its whole pieces go back now, those at its edges when no neighbour lives there any more. False: no live
  // block begins there.
  bool retire(std::uint64_t first) {
    const Returning returning(*this);
    typename Mapping<S>::Taken pieces;
    {
      Locked hold(lock_);
      Extent* const extent = blocks_.forget_live(first);
      if (!extent) return false;
      blocks_.zone(*extent).set(extent, State::retired);
      Vector<Retiring> own = retiring(extent);
      pieces = take_retired(own);
      add_retiring(own);
    }
    give_back_retired(std::move(pieces));
    return true;
  }
  // The same for a block that work may still use: it stays as it is until the fence has settled.
  bool retire(std::uint64_t first, Fence&& fence) {
    Locked hold(lock_);
    Extent* const extent = blocks_.forget_live(first);
    if (!extent) return false;
    extent->retires = true;
    blocks_.free(extent, kNoOrder, std::move(fence), true);
    add_retiring(retiring(extent));
    return true;
  }

  // As CutPool's; retired blocks whose fences have settled by now go back.
  bool settle(Asked asked = Asked::skip) {
    const bool any = Base::settle(asked);
    typename Mapping<S>::Taken pieces;
    const Returning returning(*this);
    {
      Locked hold(lock_);
      pieces = take_retired(retiring_);
    }
    give_back_retired(std::move(pieces));
    return any;
  }

  // Access to all that is mapped is asked for once more: it has changed. The first error. A piece that another thread
  // unmaps meanwhile is none.
  Error allow_access_again() {
    typename Mapping<S>::Taken mapped;
    Error first_error{};
    {
      Locked hold(lock_);
      pieces_.for_each_in(settings_.first, settings_.first + settings_.bytes,
                          [&](std::uint64_t first, const Piece<Handle>& piece) {
                            mapped.push_back({first, piece});
                          });
      figures_.accesses += mapped.size();
    }
    for (const auto& [first, piece] : mapped) {
      const Error error = source_.allow_access(first, piece.bytes);
      if (source_.failed(error) && !source_.failed(first_error) && is_there(first, piece)) first_error = error;
    }
    return first_error;
  }

  // Calls visit(extent) for each free extent, under the lock.
  template <class Visit>
  void for_each_free(Visit visit) {
    Locked hold(lock_);
    for (Extents& extents : blocks_.zones()) extents.for_each_free(visit);
  }

  // Mapped bytes that trim(0) would give back now. It takes as long as there are free extents of a piece or more.
  std::uint64_t reclaimable_bytes() {
    Locked hold(lock_);
    std::uint64_t bytes = 0;
    for (const Extents& extents : blocks_.zones()) {
      const BySize& free = extents.free();
      for (Extent* at = free.largest(); at && at->bytes >= piece_; at = free.next_smaller(*at))
        bytes += pieces_.bytes_within(at->first, at->end());
    }
    return bytes;
  }

  // Every block is gone, and no work uses the memory: all of it goes back, and retired addresses may be used again.
  void end() {
    {
      Locked hold(lock_);
      blocks_.end();
    }
    trim(0);
    Locked hold(lock_);
    if (figures_.mapped_bytes || !retiring_.empty()) return;
    figures_.retired_bytes = 0;
    for (Extents& extents : blocks_.zones()) extents.forget_retired();
  }

  // Gives memory back until so much is mapped, as far as none of it is in use. Returns the bytes given back.
  std::uint64_t trim(std::uint64_t keep_bytes, Asked asked = Asked::skip) {
    settle(asked);
    const Returning returning(*this);
    Mapping<S> mapping(source_);
    {
      Locked hold(lock_);
      if (figures_.mapped_bytes > keep_bytes) move_out(mapping, figures_.mapped_bytes - keep_bytes);
    }
    const std::uint64_t given_back = mapping.unmap_runs();
    mapping.destroy_spare();
    Locked hold(lock_);
    put_back(mapping);
    return given_back;
  }

  RangeFigures figures() {
    Locked hold(lock_);
    RangeFigures now = figures_;
    static_cast<BlockFigures&>(now) = blocks_.figures();
    now.largest_free = blocks_.largest_free();
    now.used_peak = this->used_peak_;
    return now;
  }

 private:
  static constexpr std::size_t kZones = Blocks<Fence>::kZones;
  static constexpr int kTriesMax = 3, kLooksMax = 64;
  // A new piece has at most so many bytes for one of an average live block, rounded up to a power of two. Larger pieces
  // take fewer calls, but none is moved while any block lies there: of bench/lifetimes.py's traces, 8 costs memory and
  // 2 costs calls. Where memory is nearly full a piece has about one block, so that the last bytes can be had.
  static constexpr std::uint64_t kPieceBlocks = 4;
  // Nor is it larger than so much of all memory, for a block that lives at its edge holds all of it.
  static constexpr std::uint64_t kPiecesOfAll = 1024;
  // Growth at the end of a zone takes so much of what is used more, as far as the bound allows.
  static constexpr std::uint64_t kMorePart = 64;

  struct Retiring {
    std::uint64_t piece;
    Extent* block;
  };
  // Where a block comes to lie that fits nowhere: memory beside bare addresses and a part of those, or bare ones alone.
  struct Window {
    Extent *part = nullptr, *bare = nullptr;
    std::uint64_t bytes_missing = ~std::uint64_t{0};
    bool bare_is_behind() const { return !part || part == bare->before; }
  };
  // A window while memory is mapped there. Its extents are busy.
  struct Growth {
    Extent *part = nullptr, *bare = nullptr;
    Order part_order = kAnyOrder;
    std::uint64_t part_stamp = 0;
    std::uint64_t first = 0;  // of the block
    std::uint64_t piece_bytes_max = 0;
  };

  std::uint64_t round_up(std::uint64_t bytes) const { return (bytes + piece_ - 1) / piece_ * piece_; }
  std::uint64_t round_down(std::uint64_t bytes) const { return bytes / piece_ * piece_; }

  // Whether the piece still lies there. One that is moved leaves before it is unmapped.
  bool is_there(std::uint64_t first, const Piece<Handle>& piece) {
    Locked hold(lock_);
    const Piece<Handle>* const found = pieces_.find(first);
    return found && found->handle == piece.handle;
  }

  Answer take_when_short(std::uint64_t bytes, Order order) {
    Locked hold(lock_);
    is_short_ = true;
    return take_anywhere(bytes, order);
  }

  // --- Growth
  Answer grow(std::uint64_t bytes, Order order) {
    const Returning returning(*this);  // pieces that move, and those that a failure leaves over
    Growth growth;
    Mapping<S> mapping(source_);
    {
      Locked hold(lock_);
      growing_bytes_ += bytes;
      Window where = window(Blocks<Fence>::zone_of(bytes), bytes, order);
      Answer there{};
      if (is_short_ || !where.bare || figures_.mapped_bytes + where.bytes_missing > bytes_max())
        there = take_anywhere(bytes, order);
      for (std::size_t zone = 0; zone < kZones && !where.bare; ++zone) where = window(zone, bytes, order);
      if (there.ok || !where.bare) growing_bytes_ -= bytes;
      if (there.ok) return there;
      if (!where.bare) return {0, source_.no_addresses(), false, false};
      growth = planned(where, bytes, mapping);
    }
    mapping.unmap_runs();
    const Error error = mapping.fill(growth.bare->first, growth.bare->end(), growth.piece_bytes_max);
    const bool failed = source_.failed(error);
    const std::uint64_t lost = failed ? mapping.undo() : 0;
    mapping.destroy_spare();
    Locked hold(lock_);
    growing_bytes_ -= bytes;
    if (failed) give_up(growth, lost);
    put_back(mapping);
    if (failed) return {0, error, false, false};
    is_short_ = false;
    pieces_.insert(mapping.mapped);
    figures_.mapped_peak = std::max(figures_.mapped_peak, figures_.mapped_bytes);
    Extents& extents = blocks_.zone(*growth.bare);
    if (growth.part) extents.set(growth.part, State::free);
    Extent* const all = extents.set(growth.bare, State::free);
    const Extent* const block = blocks_.hand_out(extents.cut(all, growth.first, bytes));
    note_used(blocks_.needed_bytes());
    return {block->first, {}, true, false};
  }
  void give_up(const Growth& growth, std::uint64_t lost) {
    Extents& extents = blocks_.zone(*growth.bare);
    figures_.mapped_bytes -= growth.bare->bytes - lost;
    if (!lost) extents.set(growth.bare, State::bare);
    if (growth.part) extents.set(growth.part, State::free, growth.part_order, growth.part_stamp);
  }

  Window window(std::size_t zone, std::uint64_t bytes, Order order) {
    Window best;
    const auto consider = [&](Extent* part, Extent* bare) {
      if (!bare || bare->state != State::bare) return;
      const std::uint64_t missing = round_up(bytes - part->bytes);
      if (missing <= bare->bytes && missing < best.bytes_missing) best = {part, bare, missing};
    };
    const auto look_at = [&](const auto& free) {
      int looks = 0;
      for (Extent* part = free.largest(); part && looks < kLooksMax; part = free.next_smaller(*part), ++looks) {
        if (part->bytes >= bytes) continue;
        consider(part, part->after);
        consider(part, part->before);
      }
    };
    const Extents& extents = blocks_.zones()[zone];
    if (blocks_.may_use_waiting(order)) look_at(extents.waiting(order));
    look_at(extents.free());
    const std::uint64_t missing = round_up(bytes);
    if (missing < best.bytes_missing)
      if (Extent* const bare = extents.bare().best_fit(missing)) best = {nullptr, bare, missing};
    return best;
  }

  // The most that was needed lately, with what threads are mapping memory for.
  std::uint64_t used_lately() const { return std::max(recent_peak_, blocks_.needed_bytes() + growing_bytes_); }
  // The most that may be mapped.
  std::uint64_t bytes_max() const {
    const std::uint64_t used = used_lately();
    const std::uint64_t part = used / 100 * settings_.percent_max + used % 100 * settings_.percent_max / 100;
    return round_down(std::max(part, used + piece_));
  }

  Growth planned(const Window& where, std::uint64_t bytes, Mapping<S>& mapping) {
    Extents& extents = blocks_.zone(*where.bare);
    const bool is_behind = where.bare_is_behind();
    const std::uint64_t missing = where.bytes_missing + more(where);
    Growth growth;
    growth.piece_bytes_max = piece_bytes_max(missing);
    if (where.part) {
      growth.part_order = where.part->order;
      growth.part_stamp = where.part->stamp;
      growth.part = extents.cut(where.part, where.part->first, where.part->bytes);
    }
    growth.bare = extents.cut(where.bare, is_behind ? where.bare->first : where.bare->end() - missing, missing);
    growth.first = !growth.part ? growth.bare->first : is_behind ? growth.part->first : growth.part->end() - bytes;
    figures_.mapped_bytes += missing;
    if (figures_.mapped_bytes > bytes_max()) move_out(mapping, figures_.mapped_bytes - bytes_max());
    return growth;
  }
  // At the end of what was ever used, where nothing lies behind: so that the next block need not grow.
  std::uint64_t more(const Window& where) const {
    const std::uint64_t mapped = figures_.mapped_bytes + where.bytes_missing;
    if (where.bare->after || !where.bare_is_behind() || mapped >= bytes_max()) return 0;
    if (is_nearly_full(where.bytes_missing)) return 0;
    return round_down(
        std::min({bytes_max() - mapped, used_lately() / kMorePart, where.bare->bytes - where.bytes_missing}));
  }
  bool is_nearly_full(std::uint64_t missing) const {
    return figures_.mapped_bytes + missing > settings_.memory_bytes / 4 * 3;
  }
  std::uint64_t piece_bytes_max(std::uint64_t missing) const {
    const BlockFigures& now = blocks_.figures();
    const std::uint64_t average = (now.live_bytes + missing) / (now.live_blocks + 1);
    const std::uint64_t most = std::min(average * (is_nearly_full(missing) ? 1 : kPieceBlocks),  //
                                        settings_.memory_bytes / kPiecesOfAll);
    std::uint64_t bytes = piece_;
    while (bytes < missing && bytes < most) bytes *= 2;
    return bytes;
  }

  // --- Moving. All under the lock.
  // Marks runs of pieces that hold at least so much, those in the largest extents first.
  void move_out(Mapping<S>& mapping, std::uint64_t bytes) {
    std::uint64_t found = 0;
    for (std::size_t zone = kZones; zone--;) {
      Extents& extents = blocks_.zones()[zone];
      for (Extent* at = extents.free().largest(); at && at->bytes >= piece_ && found < bytes;) {
        const Extent key = *at;
        found += move_out_of(mapping, extents, at, bytes - found);
        at = extents.free().next_smaller(key);
      }
    }
    figures_.mapped_bytes -= found;
  }
  std::uint64_t move_out_of(Mapping<S>& mapping, Extents& extents, Extent* extent, std::uint64_t bytes) {
    auto pieces = pieces_.take(extent->first, extent->end(), bytes);
    if (pieces.empty()) return 0;
    const std::uint64_t first = pieces.front().first, end = pieces.back().first + pieces.back().second.bytes;
    mapping.runs.push_back({extents.cut(extent, first, end - first), std::move(pieces)});
    return end - first;
  }
  // The runs are bare now, or still there where they could not be unmapped.
  void put_back(const Mapping<S>& mapping) {
    for (const auto& run : mapping.runs) {
      if (!run.unmapped) {
        pieces_.insert(run.pieces);
        figures_.mapped_bytes += run.extent->bytes;
      }
      blocks_.zone(*run.extent).set(run.extent, run.unmapped ? State::bare : State::free);
    }
    figures_.mapped_peak = std::max(figures_.mapped_peak, figures_.mapped_bytes);
    static_cast<MapFigures&>(figures_) += mapping.figures;
  }

  // --- Retired blocks
  // Under the lock: the pieces that have a part of the block.
  Vector<Retiring> retiring(Extent* block) {
    Vector<Retiring> own;
    pieces_.for_each_in(block->first, block->end(), [&](std::uint64_t at, const Piece<Handle>&) {
      own.push_back({at, block});
    });
    figures_.retired_bytes += block->bytes;
    return own;
  }
  void add_retiring(const Vector<Retiring>& own) {
    for (const Retiring& later : own)
      if (!std::exchange(pieces_.find(later.piece)->is_retiring, true)) retiring_.push_back(later);
  }
  // Under the lock: those of these pieces that have nothing but retired blocks and free bytes; those bytes are retired,
  // too.
  typename Mapping<S>::Taken take_retired(Vector<Retiring>& all) {
    typename Mapping<S>::Taken taken;
    std::erase_if(all, [&](const Retiring& retiring) {
      const Piece<Handle>* const piece = pieces_.find(retiring.piece);
      if (!piece) return true;  // it went with another block
      if (!retire_rest(retiring.block, retiring.piece, retiring.piece + piece->bytes)) return false;
      taken.push_back({retiring.piece, *piece});
      pieces_.erase(retiring.piece);
      return true;
    });
    return taken;
  }
  void give_back_retired(typename Mapping<S>::Taken pieces) {
    if (pieces.empty()) return;
    std::uint64_t all = 0;
    for (const auto& [first, piece] : pieces) all += piece.bytes;
    Mapping<S> mapping(source_);
    const std::uint64_t lost = mapping.undo(std::move(pieces));
    mapping.destroy_spare();
    Locked hold(lock_);
    put_back(mapping);
    figures_.mapped_bytes -= all - lost;
  }
  // Under the lock. False: a block lives between these addresses, or work may still use a part of them.
  bool retire_rest(Extent* retired, std::uint64_t first, std::uint64_t end) {
    while (retired->first > first) retired = retired->before;
    for (const Extent* at = retired; at && at->first < end; at = at->after)
      if (at->state != State::retired && (at->state != State::free || at->order != kAnyOrder)) return false;
    Extents& extents = blocks_.zone(*retired);
    for (Extent* at = retired; at && at->first < end; at = at->after) {
      if (at->state != State::free) continue;
      const std::uint64_t from = std::max(first, at->first);
      at = extents.cut(at, from, std::min(end, at->end()) - from);
      figures_.retired_bytes += at->bytes;
      extents.set(at, State::retired);
    }
    return true;
  }

  const RangeSettings settings_;
  const std::uint64_t piece_;
  Pieces<Handle> pieces_;
  Vector<Retiring> retiring_;        // one for each piece with a part that was retired
  bool is_short_ = false;            // the last growth found no memory
  std::uint64_t growing_bytes_ = 0;  // threads are mapping memory for so much
  RangeFigures figures_{};
};

}  // namespace cistern::ranges
