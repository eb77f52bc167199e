// Memory of our own from the system, by system calls: it is asked for under locks, and those who watch the program's
// mappings have no use for it.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "pool/base/system_call.hpp"

namespace cistern {

// Zeroed memory, anywhere or by `flags` at `at`; null: there is none.
inline void* map_own_memory(std::size_t bytes, void* at = nullptr, int flags = 0) {
  const long mapped =
      system_call(SYS_mmap, reinterpret_cast<std::uintptr_t>(at), bytes, PROT_READ | PROT_WRITE,
                  static_cast<std::uintptr_t>(MAP_PRIVATE | MAP_ANONYMOUS | flags), static_cast<std::uintptr_t>(-1), 0);
  return mapped < 0 && mapped >= -4095 ? nullptr : reinterpret_cast<void*>(mapped);
}
inline void unmap_own_memory(void* memory, std::size_t bytes) {
  system_call(SYS_munmap, reinterpret_cast<std::uintptr_t>(memory), bytes);
}

}  // namespace cistern
