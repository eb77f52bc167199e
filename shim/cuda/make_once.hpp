// An object that the first thread to use it makes, and that never ends.
#pragma once
#include <atomic>
#include <new>

#include "pool/base/internal_memory.hpp"

namespace cistern::cuda {

template <class T>
T* make_once(std::atomic<T*>& slot) {
  T* known = slot.load(std::memory_order_acquire);
  if (known) [[likely]]
    return known;
  auto* made = new (internal_allocate(sizeof(T))) T;
  if (slot.compare_exchange_strong(known, made)) return made;
  internal_deallocate(made, sizeof(T));
  return known;
}

}  // namespace cistern::cuda
