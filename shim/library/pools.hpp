// The library's pools (cistern/cistern.h): accounts of memory of one kind. Their calls are declared in library.hpp.
#pragma once
#include <atomic>

#include "stats/snapshot.hpp"

namespace cistern::library {

// There has been one.
inline constinit std::atomic<bool> any_pool{false};

// Whether `block` is alive in a pool, whose deallocation alone may end it; a line says so of the call `api`.
bool refuse_block_of_pool(const char* api, const void* block);

void add_pools(Snapshot& snapshot);

void pools_before_fork();
void pools_after_fork_in_parent();
void pools_after_fork_in_child();

}  // namespace cistern::library
