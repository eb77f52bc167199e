// Memory pools of stream-ordered allocation: what they keep for reuse and when they give it back.
#pragma once
#include <map>

#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/marker.hpp"

namespace simcuda {

struct FreeBlock {
  uintptr_t address;
  uint64_t stream;     // that freed it
  MarkerPointer done;  // its free was reached; null: immediately
};

struct MemoryPool {
  Device* device = nullptr;
  bool is_default = false;
  std::multimap<size_t, FreeBlock> unused;  // by bytes, rounded
  cuuint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0;
  cuuint64_t release_threshold = 0;
  int follow_event_dependencies = 1, opportunistic = 1, internal_dependencies = 1;
};

MemoryPool* make_default_pool(Locked&, Device& device);
// After a synchronising free: poison it and keep it in its pool.
void give_to_pool(Locked& lock, const Allocation& allocation);
// Returns to the device whatever pools keep and no stream uses any more. False: there was nothing.
bool release_unused(Locked& lock, Device& device);

}  // namespace simcuda
