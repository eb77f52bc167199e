// The blocks of a pool that cuts ranges of addresses: which live, which work may use again, and which still wait for
// fences. Blocks of like sizes lie in one zone, for a small one that lives long would keep a hole between large ones.
//
// All but settle() is called under the pool's lock.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/ranges/extents.hpp"
#include "pool/ranges/fences.hpp"
#include "pool/ranges/live_blocks.hpp"

namespace cistern::ranges {

struct BlockFigures {
  std::uint64_t live_bytes, live_blocks, live_peak, allocations, hits;
};

template <class Fence>
class Blocks {
 public:
  static constexpr std::uint64_t kSmallMax = std::uint64_t{512} << 10;  // the first zone's blocks are smaller
  static constexpr std::size_t kZones = 4, kZoneFactor = 32;

  // `reuse_in_order`: work may use what work of the same order freed, before the fence has settled.
  Blocks(Lock& lock, bool reuse_in_order) : reuse_in_order_(reuse_in_order), fences_(lock) {}

  static std::uint64_t rounded(std::uint64_t bytes) {
    return std::max((bytes + kGranule - 1) / kGranule * kGranule, kGranule);
  }
  static std::size_t zone_of(std::uint64_t bytes) {
    std::size_t zone = 0;
    for (std::uint64_t max = kSmallMax; zone + 1 < kZones && bytes >= max; max *= kZoneFactor) ++zone;
    return zone;
  }
  std::array<Extents, kZones>& zones() { return zones_; }
  Extents& zone(const Extent& extent) { return zones_[extent.zone]; }

  bool may_use_waiting(Order order) const { return order != kAnyOrder && order != kNoOrder && reuse_in_order_; }
  // The smallest free extent of a zone that fits; null: there is none.
  Extent* best_fit(std::size_t zone, std::uint64_t bytes, Order order) const {
    Extent* const of_any = zones_[zone].free().best_fit(bytes);
    if (!may_use_waiting(order)) return of_any;
    Extent* const own = zones_[zone].waiting(order).best_fit(bytes);
    return !own || (of_any && of_any->bytes < own->bytes) ? of_any : own;
  }
  // A free extent among blocks of any size. A small block that lives long among large ones keeps memory from going
  // elsewhere, so this is for when no more may be taken.
  Extent* best_fit_anywhere(std::uint64_t bytes, Order order) const {
    Extent* best = nullptr;
    for (std::size_t zone = 0; zone < kZones; ++zone)
      if (Extent* const extent = best_fit(zone, bytes, order))
        if (!best || extent->bytes < best->bytes) best = extent;
    return best;
  }

  // A live block among others of its size; null: there is no room. `exact`: while fences wait, only one that fits
  // exactly.
  Extent* take(std::uint64_t bytes, Order order, bool exact) {
    const std::size_t zone = zone_of(bytes);
    if (may_use_waiting(order)) zones_[zone].serve(order);
    Extent* const extent = best_fit(zone, bytes, order);
    if (!extent || (exact && extent->bytes != bytes && !fences_.empty())) return nullptr;
    return take_from(extent, bytes);
  }
  Extent* take_from(Extent* extent, std::uint64_t bytes) {
    ++figures_.hits;
    return hand_out(zone(*extent).cut(extent, extent->first, bytes));
  }

  // A busy extent becomes a live block.
  Extent* hand_out(Extent* extent) {
    zone(*extent).set(extent, State::live);
    live_.insert(extent);
    ++figures_.allocations;
    figures_.live_blocks = live_.count();
    figures_.live_bytes += extent->bytes;
    figures_.live_peak = std::max(figures_.live_peak, figures_.live_bytes);
    return extent;
  }
  Extent* find_live(std::uint64_t first) const { return live_.find(first); }
  // The block is not live any more, and its extent is in another state soon. Null: no live block begins there.
  Extent* forget_live(std::uint64_t first) {
    Extent* const extent = live_.find(first);
    if (!extent) return nullptr;
    live_.erase(first);
    figures_.live_blocks = live_.count();
    figures_.live_bytes -= extent->bytes;
    return extent;
  }
  // `waits`: only work of this order may use it before the fence has settled.
  Extent* free(Extent* extent, Order order, Fence&& fence, bool waits) {
    if (!waits) return zone(*extent).set(extent, State::free);
    return zone(*extent).set(extent, State::free, order, fences_.add(order, std::move(fence)));
  }

  // Extents whose fences have settled by now become free for all work. False: there were none. Not under the lock.
  template <class Source>
  bool settle(Source& source, Asked asked) {
    return fences_.settle(
        asked, [&](Fence& fence) { return source.settled(fence); }, settled());
  }
  // The same for one order, mostly by one question.
  template <class Source>
  bool settle_next(Source& source) {
    return fences_.settle_next([&](Fence& fence) { return source.settled(fence); }, settled());
  }
  void settle_all() {
    for (Extents& extents : zones_) extents.settle_all();
  }

  // No block is live any more, and no work uses memory.
  void end() {
    live_.take_all([&](Extent* extent) { zone(*extent).set(extent, State::free); });
    figures_.live_blocks = figures_.live_bytes = 0;
    settle_all();
  }

  // Live bytes, and those that work may still use.
  std::uint64_t used_bytes() const {
    std::uint64_t used = figures_.live_bytes;
    for (const Extents& extents : zones_) used += extents.waiting_bytes();
    return used;
  }
  // Live bytes, and those that only a fence makes free: work that asks for what it freed need not wait for the rest.
  std::uint64_t needed_bytes() const {
    std::uint64_t needed = figures_.live_bytes;
    for (const Extents& extents : zones_) needed += extents.unserved_bytes();
    return needed;
  }
  std::uint64_t largest_free() const {
    std::uint64_t largest = 0;
    for (const Extents& extents : zones_)
      if (const Extent* const extent = extents.free().largest()) largest = std::max(largest, extent->bytes);
    return largest;
  }
  BlockFigures& figures() { return figures_; }
  const BlockFigures& figures() const { return figures_; }

 private:
  auto settled() {
    return [&](Order order, std::uint64_t stamp) {
      for (Extents& extents : zones_) extents.settle(order, stamp);
    };
  }

  const bool reuse_in_order_;
  std::array<Extents, kZones> zones_;
  LiveBlocks live_;
  Fences<Fence> fences_;
  BlockFigures figures_{};
};

}  // namespace cistern::ranges
