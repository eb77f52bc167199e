// The allocators of frameworks (cistern/plugins.h), for reports.
#pragma once
#include <atomic>

namespace cistern::library {

// PyTorch has taken memory from a pool of ours: what it gives back comes here, and not into a cache of its own.
inline constinit std::atomic<bool> torch_allocates_here{false};

}  // namespace cistern::library
