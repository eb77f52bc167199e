// Blocks with call sites. A sampled block lies in a page that holds nothing else, so that freeing other blocks costs
// nothing; a side table of the page has, per block, the site and the size that the program asked for.
#pragma once
#include "pool/host_layout.hpp"

namespace cistern::host_pool {

inline constinit std::uint64_t sample_interval_bytes = 0;  // mean distance of two samples; 0: none are taken
inline bool sampling() { return sample_interval_bytes != 0; }

}  // namespace cistern::host_pool
