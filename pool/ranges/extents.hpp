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
#include <utility>

#include "pool/base/internal_memory.hpp"
#include "pool/ranges/by_size.hpp"

namespace cistern::ranges {

// The free extents of one order, until their fences settle.
struct Waiting {
  Treap sizes;
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
    Extent like{};
    like.first = first;
    like.bytes = bytes;
    like.state = State::busy;
    like.zone = static_cast<std::uint8_t>(zone);
    return made(like);
  }
  // A range that is one busy extent goes.
  void remove(Extent* extent) {
    assert(!extent->before && !extent->after && extent->state == State::busy);
    extent->after = unused_;
    unused_ = extent;
  }

  // In free extents that have an order.
  std::uint64_t waiting_bytes() const { return waiting_bytes_; }
  // Those of orders that do not ask for them.
  std::uint64_t unserved_bytes() const { return waiting_bytes_ - served_bytes_; }

  // Free for all work.
  const BySize& free() const { return free_; }
  // Free for work of this order only.
  const Treap& waiting(Order order) const {
    static constexpr Treap kNone;
    const Waiting* const waiting = find(order);
    return waiting ? waiting->sizes : kNone;
  }
  // Without memory.
  const BySize& bare() const { return bare_; }

  // Work of this order asks for what it freed: from now on its free extents are joined before their fences have
  // settled. Where no work uses them before, that would only hold the earlier memory back, again and again.
  void serve(Order order) {
    Waiting& waiting = waiting_[order];
    if (std::exchange(waiting.is_served, true)) return;
    for (const Extent* at = waiting.oldest; at; at = at->newer) served_bytes_ += at->bytes;
  }

  // Extents that work of this order freed up to then become free for all work; in no order, those of this stamp only.
  void settle(Order order, std::uint64_t stamp) {
    const Waiting* const waiting = find(order);
    Extent* extent = waiting ? waiting->oldest : nullptr;
    while (extent && extent->stamp <= stamp) {
      Extent* const next = extent->newer;
      if (order != kNoOrder || extent->stamp == stamp) set_settled(extent);
      extent = next;
    }
  }

  void settle_all() {
    for (const auto& [order, waiting] : waiting_)
      while (waiting.oldest) set_settled(waiting.oldest);
  }

  // Retired extents become bare: none has memory any more, and no one knows their addresses.
  void forget_retired() {
    for (Extent& extent : all_)
      if (extent.state == State::retired) set(&extent, State::bare);
  }

  // Calls visit(extent) for each free one, and changes none; it takes as long as there are extents.
  template <class Visit>
  void for_each_free(Visit visit) {
    for (Extent& extent : all_)
      if (extent.state == State::free) visit(extent);
  }

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
  void set_settled(Extent* extent) {
    set(extent, std::exchange(extent->retires, false) ? State::retired : State::free);
  }
  bool is_like(const Extent* neighbour, const Extent& extent) const {
    return neighbour && neighbour->state == extent.state && neighbour->order == extent.order &&
           (neighbour->stamp == extent.stamp || is_served(extent.order));
  }
  bool is_served(Order order) const {
    const Waiting* const waiting = find(order);
    return waiting && waiting->is_served;
  }
  const Waiting* find(Order order) const {
    const auto found = waiting_.find(order);
    return found == waiting_.end() ? nullptr : &found->second;
  }
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
    extent->is_noted = extent->state == State::bare || extent->state == State::free;
    if (!extent->is_noted) return;
    if (extent->order != kAnyOrder) {
      Waiting& waiting = waiting_[extent->order];
      waiting.insert(extent, from);
      waiting_bytes_ += extent->bytes;
      if (waiting.is_served) served_bytes_ += extent->bytes;
    } else {
      (extent->state == State::bare ? bare_ : free_).insert(extent);
    }
  }
  void forget_size(Extent* extent) {
    if (!extent->is_noted) return;
    extent->is_noted = false;
    if (extent->order != kAnyOrder) {
      Waiting& waiting = waiting_[extent->order];
      waiting.erase(extent);
      waiting_bytes_ -= extent->bytes;
      if (waiting.is_served) served_bytes_ -= extent->bytes;
    } else {
      (extent->state == State::bare ? bare_ : free_).erase(extent);
    }
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
    extent->rank = static_cast<std::uint32_t>(random_ >> 32);
    return extent;
  }

  Deque<Extent> all_;
  Extent* unused_ = nullptr;
  BySize free_, bare_;
  Map<Order, Waiting> waiting_;
  std::uint64_t waiting_bytes_ = 0, served_bytes_ = 0;
  std::uint64_t random_ = 1;
};

}  // namespace cistern::ranges
