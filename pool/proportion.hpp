// Keeps what is taken from a source in proportion to what was live lately: a cache of mixed sizes would else grow to
// its cap, though the program never had so much at once.
//
//   note_live(bytes), note_new(bytes) -> the most that was live lately, and the largest chunk that had to be made
//   may_be_over(reserved, now)        -> on the way of every free: two loads
//   begin(now) -> how many bytes should go, of at most so many chunks -> the caller gives them up -> end()
//
// A chunk that has to be made comes on top before anything goes: what is kept leaves room for the largest of late.
// Each chunk that goes may have to be made again, so that few go for each allocation, and as many more as blocks were
// live: a program whose phases need different sizes in turn keeps most hits, and has more kept instead. Lately: within
// the last one or two windows, each as long as was said or until many times what was live has been allocated. What is
// given back and taken again within such a time, even all at once, is never over.
#pragma once
#include <algorithm>

#include "pool/base/work_numbers.hpp"
#include "pool/limits.hpp"

namespace cistern {

class Proportion {
 public:
  struct Limits {
    std::uint64_t percent = 0;         // of the most that was live: what may be reserved; 0: anything
    std::uint64_t window_ns = 0;       // 0: what was live ever counts
    std::uint64_t kept_bytes_min = 0;  // so much is kept in any case
  };
  struct Now {
    std::uint64_t reserved_bytes;
    std::uint64_t live_bytes, waste_bytes;  // of it: what the program asked for, and the rest of the chunks for that
    std::uint64_t allocations, allocated_bytes;  // so far
    std::uint64_t live_blocks;
    std::uint64_t ns;
  };

  Proportion() = default;
  Proportion(const Proportion&) = delete;
  Proportion& operator=(const Proportion&) = delete;
  // Before anything is noted.
  void set_limits(const Limits& limits) {
    limits_ = limits;
    ends_ns_ = limits.percent ? 0 : kAnything;
    most_bytes_ = limits.percent ? limits.kept_bytes_min : kAnything;
  }

  void note_live(std::uint64_t bytes) { raise(live_.latest, bytes); }
  void note_new(std::uint64_t bytes) { raise(made_.latest, bytes); }

  bool may_be_over(std::uint64_t reserved_bytes, std::uint64_t now_ns) const {
    return reserved_bytes > most_bytes_.load(std::memory_order_relaxed) ||
           now_ns > ends_ns_.load(std::memory_order_relaxed);
  }

  // What the calling thread should give up; nothing where others have been told already.
  GiveUp begin(const Now& now) {
    if (!limits_.percent) return {};
    turn_windows(now);
    earn(more_than_known(allocations_, now.allocations) +
         more_than_known(most_blocks_, now.live_blocks) * kAllocationsForEach);
    const std::uint64_t most = most_reserved();
    most_bytes_.store(std::max(most, limits_.kept_bytes_min), std::memory_order_relaxed);
    const std::uint64_t goal = std::max(most, now.live_bytes + now.waste_bytes + limits_.kept_bytes_min);
    GiveUp what;
    std::uint64_t going = going_bytes_.load();
    do {
      if (now.reserved_bytes <= goal + going) return {};
      what.bytes = now.reserved_bytes - goal - going;
    } while (!going_bytes_.compare_exchange_weak(going, going + what.bytes));
    std::uint64_t earned = earned_.load();
    do what.chunks_max = std::min(earned / kAllocationsForEach, kChunksAtOnceMax);
    while (!earned_.compare_exchange_weak(earned, earned - what.chunks_max * kAllocationsForEach));
    if (what.chunks_max) return what;
    going_bytes_.fetch_sub(what.bytes);
    return {};
  }
  // After a begin() that said something: so many chunks went.
  void end(const GiveUp& what, std::uint64_t chunks) {
    going_bytes_.fetch_sub(what.bytes);
    earned_.fetch_add((what.chunks_max - chunks) * kAllocationsForEach);
  }

  // A forked child has nothing yet, and of the parent's threads only one.
  void after_fork_in_child() {
    live_.clear();
    made_.clear();
    set_limits(limits_);
    earned_ = kEarnedAtFirst;
    going_bytes_ = allocations_ = most_blocks_ = ends_bytes_ = 0;
    turning_ = false;
  }

  static constexpr std::uint64_t kAllocationsForEach = 12, kChunksAtOnceMax = 4, kLivesInWindow = 16;

 private:
  // The first are few, and one for each block of the most that were live: a small program whose phases need different
  // sizes makes hardly more calls, and what fills a large one's memory may be replaced once.
  static constexpr std::uint64_t kEarnedAtFirst = 16 * kAllocationsForEach, kEarnedMax = 256 * kAllocationsForEach;

  // The most of this window and the one before.
  struct Recent {
    std::atomic<std::uint64_t> latest{0}, before{0};
    std::uint64_t most() const {
      return std::max(latest.load(std::memory_order_relaxed), before.load(std::memory_order_relaxed));
    }
    void turn(std::uint64_t latest_now, bool both) {
      const std::uint64_t was = latest.exchange(latest_now);
      before.store(both ? latest_now : was);
    }
    void clear() { latest = before = 0; }
  };

  void turn_windows(const Now& now) {
    const std::uint64_t ends_ns = ends_ns_.load(std::memory_order_relaxed);
    if (now.ns <= ends_ns && now.allocated_bytes <= ends_bytes_.load(std::memory_order_relaxed)) return;
    if (turning_.exchange(true, std::memory_order_acquire)) return;
    const bool both = ends_ns && elapsed_ns(ends_ns, now.ns) > limits_.window_ns;  // nobody looked for a whole one
    if (ends_ns) {
      live_.turn(now.live_bytes, both);
      made_.turn(0, both);
    }
    const bool ends = limits_.window_ns && limits_.window_ns < kAnything - now.ns;
    ends_ns_ = ends ? now.ns + limits_.window_ns : kAnything;
    ends_bytes_ = now.allocated_bytes + live_.most() * kLivesInWindow;
    turning_.store(false, std::memory_order_release);
  }

  // `now` may be older than what another thread said.
  static std::uint64_t more_than_known(std::atomic<std::uint64_t>& known, std::uint64_t now) {
    std::uint64_t before = known.load(std::memory_order_relaxed);
    return now > before && known.compare_exchange_strong(before, now) ? now - before : 0;
  }

  void earn(std::uint64_t allocations) {
    if (const std::uint64_t earned = earned_.load(); allocations && earned < kEarnedMax)
      earned_.fetch_add(std::min(allocations, kEarnedMax - earned));
  }

  std::uint64_t most_reserved() const {
    const std::uint64_t live = live_.most(), in_all = live / 100 * limits_.percent, made = made_.most();
    return std::max(live, in_all > made ? in_all - made : 0);
  }

  static constexpr std::uint64_t kAnything = ~std::uint64_t{0};

  Limits limits_;
  Recent live_, made_;
  std::atomic<std::uint64_t> most_bytes_{kAnything};   // below, begin() says nothing; as it was found last
  std::atomic<std::uint64_t> going_bytes_{0};          // by those who were told
  std::atomic<std::uint64_t> earned_{kEarnedAtFirst};  // allocations
  std::atomic<std::uint64_t> allocations_{0};          // up to which they are earned
  std::atomic<std::uint64_t> most_blocks_{0};          // for which they are earned
  std::atomic<std::uint64_t> ends_ns_{kAnything};      // of the window; 0: the first is to begin
  std::atomic<std::uint64_t> ends_bytes_{0};           // of the window, as of all that is allocated
  std::atomic<bool> turning_{false};
};

}  // namespace cistern
