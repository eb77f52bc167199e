// What a memset does, for streams and for graph nodes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tests/simcuda/driver/graph.hpp"

namespace simcuda {

struct Fill {
  size_t element_bytes;  // 1, 2 or 4
  unsigned value;
  size_t width;  // in elements
  size_t rows;
  size_t pitch;
};

Task fill_task(Locked&, uintptr_t address, const Fill& fill);

}  // namespace simcuda
