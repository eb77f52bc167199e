// Measures which way is faster on this machine, copies through the ring or the driver's own, for one device and
// direction. It decides by ranges of sizes that are powers of two.
//
// The program's own copies are the trials. Each trial has two times: end to end, from the device's clock, and the time
// that the caller was blocked. Each way counts with the least time of its trials, per byte. Staged wins a range if it
// is better in one time and no more than 5 % worse in the other.
//
// At most 8 trials go the staged way, and none after one that took twice as long in both times. None goes the native
// way after two that took twice as long, or after the first one where it took eight times as long and 20 ms more. The
// time that trials lost against the other way is at most 1 % of the process's time, except for the first trial. A
// decision is forgotten when the way that won takes much longer or shorter than it did then.
//
// A native trial may take as long as the rest of the program. So where nothing says that the driver copies faster than
// 0.5 GB/s, its copy of the first 2 MiB may be the trial.
#pragma once
#include <bit>
#include <cstdint>
#include <optional>

#include "pool/base/lock.hpp"

namespace cistern::staging {

enum class Way : std::uint8_t { native, staged };

constexpr unsigned kTrialsMax = 8, kTrialsToDecide = 3, kFirstRange = 13, kRanges = 22;  // from 8 KiB to 32 GiB

// 0: too small to be staged.
constexpr unsigned range_of(std::uint64_t bytes) {
  const auto log2 = static_cast<unsigned>(std::bit_width(bytes | 1)) - 1;
  return log2 < kFirstRange ? 0 : log2 - kFirstRange + 1 < kRanges ? log2 - kFirstRange + 1 : kRanges - 1;
}
constexpr std::uint64_t kFirstBytes = std::uint64_t{2} << 20, kFirstBytesSlowNs = 4'000'000;
constexpr std::uint64_t range_bytes_min(unsigned range) { return std::uint64_t{1} << (range + kFirstRange - 1); }

// Nanoseconds.
struct Took {
  std::uint64_t end_to_end, blocked;
  std::uint64_t bytes;  // that these times are of: the copy's, or its first ones
};

class Calibration {
 public:
  struct Choice {
    Way way;
    bool trial;                    // its times are wanted
    bool first_bytes_may = false;  // be all that the driver copies of it
  };
  Choice choose(std::uint64_t bytes, std::uint64_t process_ns);
  // No copy of that size is tried now.
  bool has_decided(std::uint64_t bytes);
  // A trial whose times count.
  void tried(Way way, std::uint64_t bytes, const Took& took);
  // Every copy that was not a trial; how long the caller was blocked.
  void copied(Way way, std::uint64_t bytes, std::uint64_t blocked_ns);

  struct RangeFigures {
    std::uint64_t bytes_min;
    std::optional<Way> won;  // nothing: not decided yet
    unsigned native_trials, staged_trials;
    // Nanoseconds per MiB; 0: none.
    double native_end_to_end, native_blocked, staged_end_to_end, staged_blocked;
  };
  // Nothing: no copy of that size was seen.
  std::optional<RangeFigures> figures(unsigned range);

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }

 private:
  struct Best {
    unsigned trials = 0;                 // that count
    unsigned chosen = 0;                 // all
    double end_to_end = 0, blocked = 0;  // nanoseconds per MiB
    double mebibytes = 0;                // the size of the latest trial
    void add(const Took& took, double mebibytes);
  };
  struct SizeBucket {
    std::optional<Way> won;
    Best of[2];
    bool seen = false;
    double usual_blocked = 0;  // for the way that won, since it won
    unsigned copies = 0;       // in it
    unsigned strange = 0;      // copies in a row, up to the last one, that were far from the usual time
  };
  static bool wins(const Best& staged, const Best& native);
  static bool is_slower(const Best& way, const Best& than, double times);
  static bool is_native_hopeless(const SizeBucket& bucket);
  static void decide(SizeBucket& bucket);

  Lock lock_;
  SizeBucket buckets_[kRanges];
  double lost_ns_ = 0;  // by trials of the slower way
};

}  // namespace cistern::staging
