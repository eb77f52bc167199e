// Fences of work that may still use memory after it was freed: a queue for each order of work. Fences of one order
// settle in that order; those in no order settle each by itself.
//
// Each free that waits has a stamp, which grows with time: what settles is named by its order and stamp.
#pragma once
#include <atomic>
#include <cstdint>
#include <iterator>
#include <utility>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/ranges/extents.hpp"
#include "pool/source.hpp"

namespace cistern::ranges {

template <class Fence>
class Fences {
 public:
  // The pool's lock guards the fences, too: a fence and the extent that waits for it have to appear together.
  explicit Fences(Lock& lock) : lock_(lock) {}

  // Under the lock. Returns its stamp.
  std::uint64_t add(Order order, Fence&& fence) {
    queues_[order].waiting.push_back({++stamp_, std::move(fence)});
    return stamp_;
  }

  // Whether any fence has to settle. Under the lock.
  bool empty() const { return queues_.empty(); }

  // Not under the lock: `ask` may call the driver. `end` is called under it, with an order and a stamp: the work of
  // that order has ended up to there; of no order, only the one with this stamp has. Returns whether any has ended.
  template <class Ask, class End>
  bool settle(Ask ask, End end) {
    bool any = false;
    for (const Order order : orders()) any |= settle(order, true, ask, end);
    return any;
  }
  // The same for one order, the next in turn, until one fence has not settled: mostly one question.
  template <class Ask, class End>
  bool settle_next(Ask ask, End end) {
    const Vector<Order> all = orders();
    return !all.empty() && settle(all[turn_.fetch_add(1, std::memory_order_relaxed) % all.size()], false, ask, end);
  }

 private:
  struct Waiting {
    std::uint64_t stamp;
    Fence fence;
  };
  struct Queue {
    Deque<Waiting> waiting;
    bool is_asked = false;  // one thread asks about them; it alone takes any away
  };

  Vector<Order> orders() {
    Locked hold(lock_);
    Vector<Order> orders;
    for (const auto& [order, queue] : queues_)
      if (!queue.is_asked) orders.push_back(order);
    return orders;
  }

  // From the oldest on, until one has not settled. In an order the newest is the second that is asked: if it has
  // settled, all have. In no order `each` goes on behind those that have not.
  template <class Ask, class End>
  bool settle(Order order, bool each, Ask& ask, End& end) {
    Deque<Waiting> ended;  // outlives the locks: fences may call the driver when they go
    std::size_t left = 0, kept = 0;
    Queue* const queue = begin(order, left);
    const bool in_order = order != kNoOrder;
    int asked = 0;
    bool any = false;
    while (left) {
      const bool newest = in_order && ++asked == 2;
      std::size_t at = kept;
      Waiting* one = nullptr;  // stays where it is while others add more
      {
        Locked hold(lock_);
        if (newest) at = queue->waiting.size() - 1;
        one = &queue->waiting[at];
      }
      const Settled settled = ask(one->fence);
      if (settled == Settled::no) {
        if (newest && left > 1) continue;
        if (in_order || !each) break;
        ++kept;
        --left;
        continue;
      }
      Locked hold(lock_);
      const bool all = newest && settled == Settled::yes;
      const std::uint64_t stamp = one->stamp;
      take(queue->waiting, all ? 0 : at, at + 1, ended);
      // A fence that cannot be asked any more says nothing: what waits for it stays with its order.
      if (settled == Settled::yes) end(order, stamp);
      any |= settled == Settled::yes;
      left = all ? 0 : left - 1;
    }
    if (queue) finish(order, *queue);
    return any;
  }

  // Null: there are none, or another thread asks about them.
  Queue* begin(Order order, std::size_t& count) {
    Locked hold(lock_);
    const auto found = queues_.find(order);
    if (found == queues_.end() || found->second.is_asked) return nullptr;
    found->second.is_asked = true;
    count = found->second.waiting.size();
    return &found->second;
  }
  void finish(Order order, Queue& queue) {
    Locked hold(lock_);
    queue.is_asked = false;
    if (queue.waiting.empty()) queues_.erase(order);
  }
  static void take(Deque<Waiting>& waiting, std::size_t from, std::size_t to, Deque<Waiting>& ended) {
    const auto first = waiting.begin() + static_cast<std::ptrdiff_t>(from);
    const auto last = waiting.begin() + static_cast<std::ptrdiff_t>(to);
    ended.insert(ended.end(), std::make_move_iterator(first), std::make_move_iterator(last));
    waiting.erase(first, last);
  }

  Lock& lock_;
  Map<Order, Queue> queues_;
  std::uint64_t stamp_ = 0;
  std::atomic<std::size_t> turn_{0};
};

}  // namespace cistern::ranges
