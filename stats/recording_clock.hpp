// The time of recorded events, in ticks: of the processor's counter where the system's clock is made of it, which costs
// a third of asking the system, and else nanoseconds. It must not go back from one thread to another: a free comes
// before the allocation that gets its address, and an allocation before its free. On x86 a tick is eight counts, two
// to four nanoseconds: no block gets from one thread to another in that time, and the ticks between two events mostly
// fit in a byte.
#pragma once
#include <cstdint>

#include "stats/counters.hpp"

namespace cistern::recording {

// `ordered`: behind all that the thread did before, as other threads see it.
inline std::uint64_t processor_ticks(bool ordered = true) {
#if defined(__x86_64__)
  std::uint32_t low, high;
  if (ordered) asm volatile("lfence" ::: "memory");
  asm volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
  return (std::uint64_t{high} << 32 | low) >> 3;
#else
  std::uint64_t ticks;
  if (ordered) asm volatile("isb" ::: "memory");
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks)::"memory");
  return ticks;
#endif
}

struct Clock {
  bool is_processors = false;
  std::uint64_t first = 0, first_ns = 0;  // at its start
};
inline constinit Clock the_clock;

// `processors`: the system's clock is made of the processor's counter, so that all processors have the same.
inline void start_ticks(bool processors) {
  the_clock = {processors, processors ? processor_ticks() : nanoseconds_since_start(), nanoseconds_since_start()};
}
inline std::uint64_t ticks_now(bool ordered = true) {
  return (the_clock.is_processors ? processor_ticks(ordered) : nanoseconds_since_start()) - the_clock.first;
}
// By what has passed since the start. Exact enough for a process of a millisecond, and better with time.
inline double nanoseconds_per_tick() {
  const std::uint64_t ticks = ticks_now();
  if (!the_clock.is_processors || !ticks) return 1;
  return static_cast<double>(nanoseconds_since_start() - the_clock.first_ns) / static_cast<double>(ticks);
}

}  // namespace cistern::recording
