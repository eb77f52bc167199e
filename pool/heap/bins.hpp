// Free spans of slices by their length: exact up to 32 slices, then four bins per doubling.
#pragma once
#include <algorithm>

#include "pool/heap/layout.hpp"

namespace cistern::host_pool {

constexpr unsigned kExactBins = 32;
constexpr unsigned kBins = kExactBins + 4 * 20;

inline unsigned bin_of(std::uint32_t slices) {
  if (slices <= kExactBins) return slices - 1;
  const auto doubling = static_cast<unsigned>(std::bit_width(slices - 1)) - 1;  // >= 5
  return std::min(kExactBins + (doubling - 5) * 4 + (((slices - 1) >> (doubling - 2)) & 3), kBins - 1);
}

struct Bins {
  Slice first[kBins] = {};
  std::uint64_t used[2] = {};

  void mark(unsigned bin, bool in_use) {
    const std::uint64_t bit = std::uint64_t{1} << (bin % 64);
    used[bin / 64] = in_use ? used[bin / 64] | bit : used[bin / 64] & ~bit;
  }
  // The first bin in use at or behind `bin`; kBins: none.
  unsigned next_used(unsigned bin) const {
    for (unsigned word = bin / 64; word < 2; ++word) {
      std::uint64_t bits = used[word];
      if (word == bin / 64) bits &= ~std::uint64_t{0} << (bin % 64);
      if (bits) return word * 64 + static_cast<unsigned>(std::countr_zero(bits));
    }
    return kBins;
  }
  // The last bin in use below `bin`; kBins: none.
  unsigned last_used_below(unsigned bin) const {
    while (bin-- > 0)
      if (used[bin / 64] >> (bin % 64) & 1) return bin;
    return kBins;
  }
};

}  // namespace cistern::host_pool
