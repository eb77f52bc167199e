// Live host memory of each call site over time: now and then, when a sample is drawn, all samples are looked at. That
// takes a two-hundredth of the time at most. Estimates, where not every block is a sample.
#pragma once
#include <cstdint>

#include "stats/snapshot.hpp"

namespace cistern::host {

// Inside malloc, with no lock held.
void look_at_growth(std::uint32_t now_ms);

// When exit begins.
void look_at_growth_once_more();

// Trends, and who held most when most was live: at most so much, by what is known.
void add_growth(std::uint64_t peak_bytes_max, Snapshot& snapshot);

void growth_before_fork();
void growth_after_fork();
void growth_after_fork_in_child();

}  // namespace cistern::host
