// Device memory as the other files need it.
#pragma once
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/driver.hpp"

namespace simcuda {

// The driver has addresses of its own for managed memory: no other mapping ends where it begins.
constexpr size_t kManagedGuard = 4096;

// Gives the storage of an allocation back that is not in the table any more: poison, unmap or unpin.
void release_storage(Locked& lock, const Allocation& allocation);

// [documented] What waits for the device also lets the pools return what exceeds their release threshold.
void trim_pools_after_wait(Locked& lock);

inline uintptr_t to_address(CUdeviceptr pointer) { return static_cast<uintptr_t>(pointer); }
inline uintptr_t to_address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace simcuda
