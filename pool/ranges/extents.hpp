// Ranges of addresses, each cut into extents without gap or overlap. An extent is live, free, bare (no memory lies
// there), busy (a thread is changing it) or retired (never used again). Neighbours that are free or bare are one
// extent. Free extents are found by their size, the best fit first, among those that one order of work may use.
//
// Addresses are numbers: nothing is read or written there. Not thread-safe.
//
// Room: pools that cut one growing range of addresses.
// May include: pool/base, pool.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>

#include "pool/base/internal_memory.hpp"

namespace cistern::ranges {

// Names the work that may use a free extent: kAnyOrder is all work; another value is work of that order (a stream),
// until its fence has settled.
using Order = std::uintptr_t;
constexpr Order kAnyOrder = 0;
// The order of extents whose fences settle in no order.
constexpr Order kNoOrder = ~Order{0};

enum class State : std::uint8_t { bare, free, live, busy, retired };

struct Extent {
  std::uint64_t first, bytes;
  State state;
  Order order;             // only a free extent has one
  std::uint64_t stamp;     // grows with time: when the last part of a free extent with an order was freed
  Extent *before, *after;  // by address
  // Its places in the tree of free extents of its order, and in the list of them.
  Extent *smaller, *larger;
  Extent *older, *newer;
  std::uint64_t rank;  // random: the tree is a heap by it, so it stays flat
  bool is_noted;       // it is in the tree
  std::uint8_t zone;   // the pool's number for the Extents that it belongs to

  std::uint64_t end() const { return first + bytes; }
};

// Free extents by size, then address: a treap, whose nodes are the extents themselves.
class BySize {
 public:
  bool empty() const { return !root_; }
  // The smallest with at least so many bytes, at the lowest address; null: there is none.
  Extent* best_fit(std::uint64_t bytes) const {
    Extent* best = nullptr;
    for (Extent* at = root_; at;) {
      if (at->bytes >= bytes) {
        best = at;
        at = at->smaller;
      } else {
        at = at->larger;
      }
    }
    return best;
  }
  Extent* largest() const {
    Extent* at = root_;
    while (at && at->larger) at = at->larger;
    return at;
  }
  // The largest that comes before it in this order; null: it is the smallest.
  Extent* next_smaller(const Extent& extent) const {
    Extent* next = nullptr;
    for (Extent* at = root_; at;) {
      if (comes_before(*at, extent)) {
        next = at;
        at = at->larger;
      } else {
        at = at->smaller;
      }
    }
    return next;
  }

  void insert(Extent* extent) {
    Extent** place = &root_;
    while (*place && (*place)->rank >= extent->rank)
      place = comes_before(*extent, **place) ? &(*place)->smaller : &(*place)->larger;
    split(*place, *extent, extent->smaller, extent->larger);
    *place = extent;
  }
  void erase(Extent* extent) {
    Extent** place = &root_;
    while (*place != extent) place = comes_before(*extent, **place) ? &(*place)->smaller : &(*place)->larger;
    *place = joined(extent->smaller, extent->larger);
  }

 private:
  static bool comes_before(const Extent& a, const Extent& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.first < b.first;
  }
  // The tree's extents that come before `by`, and those that come behind it.
  static void split(Extent* tree, const Extent& by, Extent*& before, Extent*& behind) {
    Extent **last_before = &before, **first_behind = &behind;
    while (tree) {
      if (comes_before(*tree, by)) {
        *last_before = tree;
        last_before = &tree->larger;
        tree = tree->larger;
      } else {
        *first_behind = tree;
        first_behind = &tree->smaller;
        tree = tree->smaller;
      }
    }
    *last_before = *first_behind = nullptr;
  }
  static Extent* joined(Extent* smaller, Extent* larger) {
    Extent* root = nullptr;
    for (Extent** place = &root;;) {
      if (!smaller || !larger) {
        *place = smaller ? smaller : larger;
        return root;
      }
      if (smaller->rank >= larger->rank) {
        *place = smaller;
        place = &smaller->larger;
        smaller = *place;
      } else {
        *place = larger;
        place = &larger->smaller;
        larger = *place;
      }
    }
  }

  Extent* root_ = nullptr;
};

// The free extents of one order.
struct Free {
  BySize sizes;
  bool is_served = false;                       // work of this order asks for them
  Extent *oldest = nullptr, *newest = nullptr;  // by stamp

  // `from`: one that is not older than it, or null.
  void insert(Extent* extent, Extent* from) {
    sizes.insert(extent);
    Extent* older = from ? from : newest;
    while (older && older->stamp > extent->stamp) older = older->older;
    extent->older = older;
    extent->newer = older ? older->newer : oldest;
    (extent->newer ? extent->newer->older : newest) = extent;
    (older ? older->newer : oldest) = extent;
  }
  void erase(Extent* extent) {
    sizes.erase(extent);
    (extent->older ? extent->older->newer : oldest) = extent->newer;
    (extent->newer ? extent->newer->older : newest) = extent->older;
  }
};

class Extents {
 public:
  Extents() = default;
  Extents(const Extents&) = delete;
  Extents& operator=(const Extents&) = delete;

  // One more range, busy as a whole.
  Extent* add(std::uint64_t first, std::uint64_t bytes, std::size_t zone = 0) {
    return made(
        {first, bytes, State::busy, kAnyOrder, 0, {}, {}, {}, {}, {}, {}, 0, false, static_cast<std::uint8_t>(zone)});
  }
  // A range that is one busy extent goes.
  void remove(Extent* extent) {
    assert(!extent->before && !extent->after && extent->state == State::busy);
    extent->after = unused_;
    unused_ = extent;
  }

  // In free extents that have an order.
  std::uint64_t waiting_bytes() const { return waiting_bytes_; }

  // Null where no work of this order has any.
  const BySize* free_of(Order order) const {
    const Free* const free = find(order);
    return !free || free->sizes.empty() ? nullptr : &free->sizes;
  }
  // The smallest with so many bytes; null: there is none.
  Extent* best_fit(std::uint64_t bytes, Order order) const {
    const BySize* const free = free_of(order);
    return free ? free->best_fit(bytes) : nullptr;
  }

  // Work of this order asks for what it freed: from now on its free extents are joined before their fences have
  // settled. Where no work uses them before, that would only hold the earlier memory back, again and again.
  void serve(Order order) { list(order).is_served = true; }

  // Extents that work of this order freed up to then become free for all work; in no order, those of this stamp only.
  void settle(Order order, std::uint64_t stamp) {
    const Free* const free = find(order);
    Extent* extent = free ? free->oldest : nullptr;
    while (extent && extent->stamp <= stamp) {
      Extent* const next = extent->newer;
      if (order != kNoOrder || extent->stamp == stamp) set(extent, State::free);
      extent = next;
    }
  }

  void settle_all() {
    for (const auto& [order, free] : waiting_)
      while (free.oldest) set(free.oldest, State::free);
  }

  // The smallest bare extent with so many bytes; null: there is none.
  Extent* bare_fit(std::uint64_t bytes) const { return bare_.best_fit(bytes); }

  // Exactly these bytes of one extent, as a busy extent of their own. The rest of the extent keeps its state.
  Extent* cut(Extent* extent, std::uint64_t first, std::uint64_t bytes) {
    assert(first >= extent->first && bytes && first + bytes <= extent->end());
    Extent* const newer = extent->newer;
    forget_size(extent);
    const std::uint64_t end = extent->end();
    if (extent->first < first) {
      Extent* const rest = made(*extent);
      rest->bytes = first - extent->first;
      link(rest, extent->before, extent);
      note_size(rest, newer);
    }
    if (first + bytes < end) {
      Extent* const rest = made(*extent);
      rest->first = first + bytes;
      rest->bytes = end - rest->first;
      link(rest, extent, extent->after);
      note_size(rest, newer);
    }
    extent->first = first;
    extent->bytes = bytes;
    extent->state = State::busy;
    return extent;
  }

  // The extent with a new state, one with neighbours in the same state. `order`, `stamp`: of a free one. A live extent
  // stays one by itself, and so does a busy or a retired one.
  Extent* set(Extent* extent, State state, Order order = kAnyOrder, std::uint64_t stamp = 0) {
    forget_size(extent);
    extent->state = state;
    extent->order = order;
    extent->stamp = stamp;
    if (state == State::free || state == State::bare) {
      if (is_like(extent->before, *extent)) extent = join(extent->before, extent);
      if (is_like(extent->after, *extent)) extent = join(extent, extent->after);
    }
    note_size(extent);
    return extent;
  }

 private:
  bool is_like(const Extent* neighbour, const Extent& extent) const {
    return neighbour && neighbour->state == extent.state && neighbour->order == extent.order &&
           (neighbour->stamp == extent.stamp || is_served(extent.order));
  }
  bool is_served(Order order) const {
    const Free* const free = find(order);
    return free && free->is_served;
  }
  const Free* find(Order order) const {
    if (order == kAnyOrder) return &any_;
    const auto found = waiting_.find(order);
    return found == waiting_.end() ? nullptr : &found->second;
  }
  Free& list(Order order) { return order == kAnyOrder ? any_ : waiting_[order]; }
  // Both are in the same state; the second one is gone.
  Extent* join(Extent* first, Extent* second) {
    forget_size(first);
    forget_size(second);
    first->bytes += second->bytes;
    first->stamp = std::max(first->stamp, second->stamp);
    first->after = second->after;
    if (second->after) second->after->before = first;
    second->after = unused_;
    unused_ = second;
    second->state = State::busy;
    return first;
  }
  void link(Extent* extent, Extent* before, Extent* after) {
    extent->before = before;
    extent->after = after;
    if (before) before->after = extent;
    if (after) after->before = extent;
  }
  void note_size(Extent* extent, Extent* from = nullptr) {
    if (extent->state == State::bare)
      bare_.insert(extent);
    else if (extent->state == State::free)
      list(extent->order).insert(extent, from);
    if (extent->state == State::free && extent->order != kAnyOrder) waiting_bytes_ += extent->bytes;
    extent->is_noted = extent->state == State::bare || extent->state == State::free;
  }
  void forget_size(Extent* extent) {
    if (!extent->is_noted) return;
    if (extent->state == State::bare)
      bare_.erase(extent);
    else
      list(extent->order).erase(extent);
    if (extent->state == State::free && extent->order != kAnyOrder) waiting_bytes_ -= extent->bytes;
    extent->is_noted = false;
  }
  Extent* made(const Extent& like) {
    Extent* extent = unused_;
    if (extent)
      unused_ = extent->after;
    else
      extent = &all_.emplace_back();
    *extent = like;
    extent->is_noted = false;
    extent->smaller = extent->larger = nullptr;
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    extent->rank = random_ >> 16;
    return extent;
  }

  Deque<Extent> all_;
  Extent* unused_ = nullptr;
  Free any_;
  Map<Order, Free> waiting_;
  BySize bare_;
  std::uint64_t waiting_bytes_ = 0;
  std::uint64_t random_ = 1;
};

}  // namespace cistern::ranges
