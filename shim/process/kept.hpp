// How much of what was freed stays with us, of every kind of GPU memory.
#pragma once
#include <algorithm>

#include "pool/proportion.hpp"
#include "shim/process/process.hpp"

namespace cistern {

// So little is no matter on any device, and a small program's calls cost it more.
inline constexpr std::uint64_t kKeptAnyway = std::uint64_t{32} << 20;

inline Proportion::Limits kept_beside(std::uint64_t percent, std::uint64_t bytes_min) {
  return {.percent = percent, .window_ns = options().trim_interval, .kept_bytes_min = std::max(bytes_min, kKeptAnyway)};
}

}  // namespace cistern
