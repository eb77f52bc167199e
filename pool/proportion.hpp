// Keeps the memory that is taken from a source in proportion to the memory that was live lately. Otherwise a cache of
// mixed sizes would grow to its cap, though the program never had so much memory at any time.
//
//   note_live(bytes)              -> the most that was live lately
//   note_there, note_gone, note_new, note_back -> the sizes that there are, had to be made, and were asked for again
//   may_be_over(reserved, now)    -> asked at every free: two loads
//   keeps(bytes, now)             -> whether a chunk that comes back is kept at all
//   may_stay_beside(bytes, now)   -> the bytes that may be kept while a chunk is made; if giving back waits for nothing
//   begin(now) -> the bytes that should go -> the caller gives them up -> end()
//
// A chunk that has to be made comes on top of the kept ones before any of them goes. So the kept chunks leave room for
// sizes that had to be made lately and of which there is none now: for the most that there was of one such size. Sizes
// that fit beside each other stay. Few chunks are kept of a size that was never asked for again.
//
// Lately: within the last one or two windows. A window ends after the time that was set, or when the program has
// allocated many times its live bytes.
#pragma once
#include <algorithm>
#include <bit>

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
  // So little is no matter on any device, and a small program's calls cost it more.
  static constexpr std::uint64_t kKeptAnyway = std::uint64_t{32} << 20;
  // For memory of a device; `bytes_min`: as its pool's option says.
  static Limits limits(std::uint64_t percent, std::uint64_t window_ns, std::uint64_t bytes_min) {
    return {.percent = percent, .window_ns = window_ns, .kept_bytes_min = std::max(bytes_min, kKeptAnyway)};
  }
  struct Now {
    std::uint64_t reserved_bytes = 0;
    // The parts of it that the program has or commands still use, and the rest of those chunks.
    std::uint64_t live_bytes = 0, waste_bytes = 0;
    std::uint64_t allocated_bytes = 0;  // so far
    std::uint64_t ns = 0;
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

  std::uint64_t most_live() const { return live_.most(); }
  void note_live(std::uint64_t bytes) { raise(live_.latest, bytes); }
  void note_new(std::uint64_t bytes) {
    const std::size_t its_class = class_of(bytes);
    Seen& seen = seen_[its_class];
    if (seen.load(std::memory_order_relaxed) != kNever) seen.store(kAskedAgain, std::memory_order_relaxed);
    raise(largest_[its_class], bytes);
    made_in_[its_class].store(window_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

  // Whether a size like this was asked for again after it had come back.
  bool asked_again(std::uint64_t bytes) const {
    return seen_[class_of(bytes)].load(std::memory_order_relaxed) == kAskedAgain;
  }
  // A chunk was taken from the source, or went back to it.
  void note_there(std::uint64_t bytes) {
    const std::size_t its_class = class_of(bytes);
    raise(most_there_[its_class].latest, there_[its_class].fetch_add(1, std::memory_order_relaxed) + 1);
  }
  void note_gone(std::uint64_t bytes) { there_[class_of(bytes)].fetch_sub(1, std::memory_order_relaxed); }

  // A chunk came back. `used_again`: it had come back before.
  void note_back(std::uint64_t bytes, bool used_again) {
    Seen& seen = seen_[class_of(bytes)];
    if (seen.load(std::memory_order_relaxed) != kAskedAgain)
      seen.store(used_again ? kAskedAgain : kCameBack, std::memory_order_relaxed);
  }
  // Whether a chunk that came back is kept. If its size was never asked for again, it is kept only as long as all kept
  // bytes, with it, are at most those that may be reserved above the most that was live.
  bool keeps(std::uint64_t bytes, const Now& now) {
    if (!limits_.percent || asked_again(bytes)) return true;
    turn_windows(now);
    const std::uint64_t live = live_.most(), in_all = live / 100 * limits_.percent;
    const std::uint64_t used = now.live_bytes + now.waste_bytes;
    const std::uint64_t kept = now.reserved_bytes - std::min(now.reserved_bytes, used);
    return kept <= std::max(in_all - std::min(in_all, live), limits_.kept_bytes_min);
  }

  bool may_be_over(std::uint64_t reserved_bytes, std::uint64_t now_ns) const {
    return reserved_bytes > most_bytes_.load(std::memory_order_relaxed) ||
           now_ns > ends_ns_.load(std::memory_order_relaxed);
  }

  // How much of what is kept may stay when a chunk of so many bytes is made; and how much of it if it is of sizes that
  // were never asked for again.
  struct Stays {
    std::uint64_t in_all, never_asked_again;
  };
  Stays may_stay_beside(std::uint64_t bytes, const Now& now) {
    if (!limits_.percent) return {kAnything, kAnything};
    turn_windows(now);
    const std::uint64_t live = now.live_bytes + bytes, most = std::max(live_.most(), live);
    const std::uint64_t in_all = most / 100 * limits_.percent;
    return {std::max(in_all - std::min(in_all, live), limits_.kept_bytes_min),
            std::max(most - live, limits_.kept_bytes_min / 4)};
  }

  // How many bytes the calling thread should give up; nothing where others have been told already.
  std::uint64_t begin(const Now& now) {
    if (!limits_.percent) return 0;
    turn_windows(now);
    const std::uint64_t most = most_reserved();
    most_bytes_.store(std::max(most, limits_.kept_bytes_min), std::memory_order_relaxed);
    const std::uint64_t goal = std::max(most, now.live_bytes + now.waste_bytes + limits_.kept_bytes_min);
    std::uint64_t going = going_bytes_.load(), bytes = 0;
    do {
      if (now.reserved_bytes <= goal + going) return 0;
      bytes = now.reserved_bytes - goal - going;
    } while (!going_bytes_.compare_exchange_weak(going, going + bytes));
    return bytes;
  }
  // After a begin() that said something.
  void end(std::uint64_t bytes) { going_bytes_.fetch_sub(bytes); }

  // A forked child has nothing yet, and of the parent's threads only one.
  void after_fork_in_child() {
    for (std::size_t of = 0; of < kClasses; ++of) {
      seen_[of] = kNever;
      largest_[of] = there_[of] = 0;
      most_there_[of].clear();
    }
    live_.clear();
    set_limits(limits_);
    going_bytes_ = ends_bytes_ = 0;
    turning_ = false;
  }

  static constexpr std::uint64_t kLivesInWindow = 16;

 private:
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

  // Sizes between two powers of two are of eight classes.
  using Seen = std::atomic<std::uint8_t>;
  static constexpr std::size_t kClasses = 512;
  static constexpr std::uint8_t kNever = 0, kCameBack = 1, kAskedAgain = 2;
  static std::size_t class_of(std::uint64_t bytes) {
    const auto power = static_cast<unsigned>(std::bit_width(bytes | 8)) - 1;
    return (power << 3) + (bytes >> (power - 3) & 7);
  }

  void turn_windows(const Now& now) {
    const std::uint64_t ends_ns = ends_ns_.load(std::memory_order_relaxed);
    if (now.ns <= ends_ns && now.allocated_bytes <= ends_bytes_.load(std::memory_order_relaxed)) return;
    if (turning_.exchange(true, std::memory_order_acquire)) return;
    const bool both =
        ends_ns && elapsed_ns(ends_ns, now.ns) > limits_.window_ns;  // a whole window passed without a look
    if (ends_ns) {
      live_.turn(now.live_bytes, both);
      for (std::size_t of = 0; of < kClasses; ++of)
        most_there_[of].turn(there_[of].load(std::memory_order_relaxed), both);
      window_.fetch_add(both ? 2 : 1, std::memory_order_relaxed);
    }
    const bool ends = limits_.window_ns && limits_.window_ns < kAnything - now.ns;
    ends_ns_ = ends ? now.ns + limits_.window_ns : kAnything;
    ends_bytes_ = now.allocated_bytes + live_.most() * kLivesInWindow;
    turning_.store(false, std::memory_order_release);
  }

  // The most bytes of a size that had to be made lately, and of which there is none now: they will have to be again.
  std::uint64_t most_to_be_made() const {
    const std::uint32_t window = window_.load(std::memory_order_relaxed);
    std::uint64_t most = 0;
    for (std::size_t of = 0; of < kClasses; ++of) {
      const std::uint64_t largest = largest_[of].load(std::memory_order_relaxed);
      if (!largest || there_[of].load(std::memory_order_relaxed)) continue;
      if (window - made_in_[of].load(std::memory_order_relaxed) > 1) continue;
      most = std::max(most, largest * most_there_[of].most());
    }
    return most;
  }
  std::uint64_t most_reserved() const {
    const std::uint64_t in_all = live_.most() / 100 * limits_.percent, made = most_to_be_made();
    return in_all > made ? in_all - made : 0;
  }

  static constexpr std::uint64_t kAnything = ~std::uint64_t{0};

  Limits limits_;
  Seen seen_[kClasses]{};
  std::atomic<std::uint64_t> largest_[kClasses]{};  // that was made
  std::atomic<std::uint32_t> made_in_[kClasses]{};  // the window in which one was, last
  std::atomic<std::uint64_t> there_[kClasses]{};    // live and kept
  Recent most_there_[kClasses];
  std::atomic<std::uint32_t> window_{1};
  Recent live_;
  std::atomic<std::uint64_t> most_bytes_{kAnything};  // below, begin() says nothing; as it was found last
  std::atomic<std::uint64_t> going_bytes_{0};         // by those who were told
  std::atomic<std::uint64_t> ends_ns_{kAnything};     // of the window; 0: the first is to begin
  std::atomic<std::uint64_t> ends_bytes_{0};          // of the window, as of all that is allocated
  std::atomic<bool> turning_{false};
};

}  // namespace cistern
