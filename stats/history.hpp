// What was live over time, of one call site or one kind, in a few points however long it takes: the least and the last
// of each interval. When all intervals are used, each two become one. What a report says of it: a trend.
//
// Memory that is zero is an empty history. Not thread-safe.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// When exit began: nothing is noted since, and no time passes. What a program frees at its end, and how long a report
// takes, says nothing of its run. 0: it has not.
inline constinit std::atomic<std::uint64_t> histories_ended_ms{0};

enum class TrendKind : std::uint8_t { unknown, one_off, constant, growing };

struct Trend {
  TrendKind kind = TrendKind::unknown;
  double bytes_per_s = 0, since_s = 0, bytes = 0;  // of growth: how fast, since when, by how much
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

// Of levels: pure, for what a History noted and for tests.
Trend trend_of(const Levels& levels);

// Whether all memory of a kind rose while one call site's grew, by half as much at least; else memory only moved there.
bool rose_beside(const Levels& all, const Trend& growth);

}  // namespace cistern
