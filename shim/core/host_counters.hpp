// Counters of host memory: shards, one cache line each, so that threads do not meet; read by figures() in core.hpp.
//
// Bytes are malloc_usable_size of the blocks. Counts and live bytes are exact once no thread is inside a call. The peak
// is an estimate: a shard settles its bytes into the common total only when they moved by kSettleBytes, so the
// true peak may be higher by at most that much per shard (2 MiB for 32 shards; 64 KiB for a program of one thread).
#pragma once
#include <cstddef>
#include <cstdint>

namespace cistern::host {

constexpr int kShards = 32;
constexpr std::int64_t kSettleBytes = std::int64_t{64} * 1024;

// False while CISTERN_HOST=off, or inside an Uncounted scope.
bool counting();

void count_birth(std::size_t usable_bytes);
void count_death(std::size_t usable_bytes);
void count_resize(std::size_t usable_before, std::size_t usable_after);
void count_failure();

// Whether this thread is inside an Uncounted scope.
bool uncounted_here();

}  // namespace cistern::host
