// Live memory over time, for one call site or one kind, in a few points for any length of time: the least and the last
// of each interval. When all intervals are used, each two become one. A report shows its trend.
//
// Memory that is zero is an empty history. Not thread-safe.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// When exit began: nothing is noted since, and no time passes. The frees of a program at its end, and the time of a
// report, say nothing about its run. 0: it has not.
inline constinit std::atomic<std::uint64_t> histories_ended_ms{0};

enum class TrendKind : std::uint8_t { unknown, one_off, constant, growing };

struct Trend {
  TrendKind kind = TrendKind::unknown;
  double bytes_per_s = 0, since_s = 0, bytes = 0;  // the growth: how fast, since when, by how much
};
const char* name_of(TrendKind kind);

// Levels at equal distances.
struct Levels {
  double start_s, interval_s;
  Vector<std::uint64_t> least, last;  // of each interval
};

class History {
 public:
  // The first block is older than what is noted first.
  void begin(std::uint64_t born_ms);
  // The level from now on. `newest_ms`: when the newest block was allocated; 0: as before.
  void note(std::uint64_t now_ms, std::uint64_t live_bytes, std::uint64_t newest_ms);
  // Up to now, the interval that has not ended included. Empty: nothing was noted.
  Levels levels(std::uint64_t now_ms) const;
  Trend trend(std::uint64_t now_ms) const;

 private:
  static constexpr std::uint32_t kPoints = 32;

  void close_intervals(std::uint64_t now_ms);

  std::uint64_t start_ms_ = 0, last_born_ms_ = 0;
  std::uint32_t width_ms_ = 0;  // 0: empty
  std::uint32_t closed_ = 0;
  std::uint64_t least_now_ = 0, last_now_ = 0;
  std::uint64_t least_[kPoints] = {}, last_[kPoints] = {};
};

// Whether the last sixth lies higher than the one before, by more than its levels change anyway: what is not growing by
// a line is not constant then, where levels are only estimates.
bool rose_at_last(const Levels& levels);

// A pure function of levels, for those of a History and for tests.
Trend trend_of(const Levels& levels);

// Whether all memory of a kind rose while one call site's grew, by half as much at least; else memory only moved there.
bool rose_beside(const Levels& all, const Trend& growth);

}  // namespace cistern
