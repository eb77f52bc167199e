// Fences of work that may still use memory after it was freed: a queue for each order of work. Fences of one order
// settle in that order; those in no order settle each by itself.
//
// A fence that answers `never` may answer again after a wait for all work, or when a call that failed succeeds. So it
// stays, unless a later one of its order says the same: then a queue does not grow while none can be asked.
//
// Each free that waits has a stamp, which grows with time: what settles is named by its order and stamp.
#pragma once
#include <sched.h>

#include <cstdint>
#include <iterator>
#include <utility>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/ranges/extents.hpp"
#include "pool/source.hpp"

namespace cistern::ranges {

// Whether a queue that another thread asks about is skipped. A call that is short of memory waits for the answer:
// memory may be free already, and no one knows it yet.
enum class Asked { skip, wait };

template <class Fence>
class Fences {
 public:
  // The pool's lock guards the fences, too: a fence and the extent that waits for it have to appear together.
  explicit Fences(Lock& lock) : lock_(lock) {}

  // Under the lock. Returns its stamp.
  std::uint64_t add(Order order, Fence&& fence) {
    queue_of(order).waiting.push_back({++stamp_, std::move(fence)});
    return stamp_;
  }

  // Whether any fence has to settle. Under the lock.
  bool empty() const { return queues_.empty(); }

  // Not under the lock: `ask` may call the driver. `end` is called under it, with an order and a stamp: the work of
  // that order has ended up to there; of no order, only the one with this stamp has. Returns whether any has ended.
  template <class Ask, class End>
  bool settle(Asked asked, Ask ask, End end) {
    bool any = false;
    for (const Order order : orders()) {
      while (asked == Asked::wait && is_asked(order)) sched_yield();
      any |= settle(begin(order), true, ask, end);
    }
    return any;
  }
  // The same for one order, the next in turn, until one fence has not settled: mostly one question.
  template <class Ask, class End>
  bool settle_next(Ask ask, End end) {
    return settle(begin_next(), false, ask, end);
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
  // One, or several.
  struct Ended {
    Waiting one;
    Vector<Waiting> all;
  };
  // One thread's way through a queue.
  struct Asking {
    Order order = kAnyOrder;
    Queue* queue = nullptr;
    std::size_t left = 0;  // still to be asked
    std::size_t kept = 0;  // in no order: those at the front that have not settled
    std::size_t at = 0;
    int asked = 0;
    Waiting* one = nullptr;  // the one at `at`, which stays where it is while others add more; null: this is the end
    bool is_newest() const { return asked == 2 && order != kNoOrder; }
  };

  // From the oldest on, until one has not settled. In an order the newest is the second that is asked: if it has
  // settled, all have. In no order `each` goes on behind those that have not.
  template <class Ask, class End>
  bool settle(Asking asking, bool each, Ask& ask, End& end) {
    bool any = false;
    while (asking.one) {
      const Settled settled = ask(asking.one->fence);
      Ended ended;  // outlives the lock: fences may call the driver when they go
      Locked hold(lock_);
      if (settled == Settled::no || (settled == Settled::never && !is_said_later(asking)))
        keep(asking, each);
      else if (take(asking, settled, ended, end))
        any = true;
      next(asking);
    }
    return any;
  }

  Vector<Order> orders() {
    Locked hold(lock_);
    Vector<Order> orders;
    for (const auto& [order, queue] : queues_) orders.push_back(order);
    return orders;
  }
  bool is_asked(Order order) {
    Locked hold(lock_);
    const auto found = queues_.find(order);
    return found != queues_.end() && found->second.is_asked;
  }
  Asking begin(Order order) {
    Locked hold(lock_);
    return begin(queues_.find(order));
  }
  Asking begin_next() {
    Locked hold(lock_);
    auto at = queues_.begin();
    if (!queues_.empty()) std::advance(at, turn_++ % queues_.size());
    return begin(at);
  }

  // The rest is called under the lock.
  using Queues = Map<Order, Queue>;
  Asking begin(typename Queues::iterator found) {
    Asking asking;
    if (found == queues_.end() || found->second.is_asked) return asking;
    found->second.is_asked = true;
    asking.order = found->first;
    asking.queue = &found->second;
    asking.left = found->second.waiting.size();
    next(asking);
    return asking;
  }
  void next(Asking& asking) {
    Deque<Waiting>& waiting = asking.queue->waiting;
    ++asking.asked;
    asking.at = asking.is_newest() ? waiting.size() - 1 : asking.kept;
    asking.one = asking.left ? &waiting[asking.at] : nullptr;
    if (asking.one) return;
    asking.queue->is_asked = false;
    if (waiting.empty()) spare_ = queues_.extract(asking.order);
  }
  // A later fence of the order says what this one does.
  static bool is_said_later(const Asking& asking) {
    return asking.order != kNoOrder && asking.at + 1 < asking.queue->waiting.size();
  }
  // It has not settled.
  void keep(Asking& asking, bool each) {
    if (asking.is_newest() && asking.left > 1) return;
    if (asking.order != kNoOrder || !each) {
      asking.left = 0;
    } else {
      ++asking.kept;
      --asking.left;
    }
  }
  // It has settled, or cannot be asked now and a later one says the same. Returns whether any work has ended.
  template <class End>
  bool take(Asking& asking, Settled settled, Ended& ended, End& end) {
    const bool is_known = settled == Settled::yes, all = asking.is_newest() && is_known;
    const std::uint64_t stamp = asking.one->stamp;
    Deque<Waiting>& waiting = asking.queue->waiting;
    const auto at = waiting.begin() + static_cast<std::ptrdiff_t>(asking.at);
    const auto first = all ? waiting.begin() : at;
    if (all)
      ended.all.assign(std::make_move_iterator(first), std::make_move_iterator(at + 1));
    else
      ended.one = std::move(*at);
    waiting.erase(first, at + 1);
    asking.left = all ? 0 : asking.left - 1;
    if (is_known) end(asking.order, stamp);
    return is_known;
  }

  Queue& queue_of(Order order) {
    const auto found = queues_.find(order);
    if (found != queues_.end()) return found->second;
    if (spare_.empty()) return queues_[order];
    spare_.key() = order;
    return queues_.insert(std::move(spare_)).position->second;
  }

  Lock& lock_;
  Queues queues_;
  typename Queues::node_type spare_;  // an empty queue: the next one need not be made
  std::uint64_t stamp_ = 0;
  std::size_t turn_ = 0;
};

}  // namespace cistern::ranges
