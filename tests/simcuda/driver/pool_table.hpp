// The memory pools that exist, by their handles.
#pragma once
#include <vector>

#include "tests/simcuda/driver/pool.hpp"

namespace simcuda {

std::vector<MemoryPool*> all_pools(Locked&);
MemoryPool* find_pool(CUmemoryPool handle);  // null: unknown
void trim_pool(Locked&, MemoryPool& pool, cuuint64_t keep_bytes);

}  // namespace simcuda
