// Timed series of calls: at most this many samples (PROBE_SAMPLES asks for fewer) and this much time, the first calls
// left out.
#pragma once
#include <cstdlib>
#include <utility>

#include "probe.hpp"

namespace probe {

inline int samples_wanted() {
  static const char* const asked = std::getenv("PROBE_SAMPLES");
  return asked != nullptr ? std::atoi(asked) : 500;
}
inline constexpr int kWarmUp = 5;
inline constexpr uint64_t kSeriesNanoseconds = 300'000'000;

// An allocation and its free, each timed by itself. `allocate` answers whether it succeeded.
template <typename Allocate, typename Free>
void pair_cost(const char* allocate_name, const char* free_name, size_t bytes, Allocate allocate, Free release) {
  std::vector<uint64_t> allocate_times, free_times;
  const uint64_t end = now_nanoseconds() + 2 * kSeriesNanoseconds;
  for (int sample = -kWarmUp; sample < samples_wanted() && (sample < kWarmUp || now_nanoseconds() < end); ++sample) {
    const uint64_t start = now_nanoseconds();
    if (!allocate()) return;
    const uint64_t between = now_nanoseconds();
    release();
    const uint64_t done = now_nanoseconds();
    if (sample < 0) continue;
    allocate_times.push_back(between - start);
    free_times.push_back(done - between);
  }
  cost(allocate_name, bytes, std::move(allocate_times));
  cost(free_name, bytes, std::move(free_times));
}

template <typename Call>
void call_cost(const char* name, Call call) {
  std::vector<uint64_t> times;
  const uint64_t end = now_nanoseconds() + kSeriesNanoseconds;
  for (int sample = -kWarmUp; sample < samples_wanted() && (sample < kWarmUp || now_nanoseconds() < end); ++sample) {
    const uint64_t start = now_nanoseconds();
    call();
    const uint64_t done = now_nanoseconds();
    if (sample >= 0) times.push_back(done - start);
  }
  cost(name, 0, std::move(times));
}

}  // namespace probe
