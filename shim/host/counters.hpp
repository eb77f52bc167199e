// Counters of host memory that the pool does not serve: shards, one cache line each, so that threads do not meet. The
// first threads have one of their own; a thread that comes later shares the last one.
//
// Bytes are malloc_usable_size of the blocks. Counts and live bytes are exact once no thread is inside a call. The peak
// is an estimate: a shard settles its bytes into the common total only when they moved by kSettleBytes, so the
// true peak may be higher by at most that much per shard (2 MiB for 32 shards; 64 KiB for a program of one thread).
#pragma once
#include <cstddef>
#include <cstdint>

#include "stats/snapshot.hpp"

namespace cistern::host {

constexpr int kShards = 32;
constexpr std::int64_t kSettleBytes = std::int64_t{64} * 1024;

// False while CISTERN_HOST=off, after count_nothing, or inside an Uncounted scope.
bool counting();
void count_nothing();

void count_birth(std::size_t usable_bytes);
void count_death(std::size_t usable_bytes);
void count_resize(std::size_t usable_before, std::size_t usable_after);
void count_failure();

bool counting_is_off();
KindFigures counted_figures();
void reset_counters();  // in a forked child

}  // namespace cistern::host
