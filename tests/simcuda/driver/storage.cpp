// How the storage of each kind of memory is given back.
#include <sys/mman.h>

#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/pool.hpp"

namespace simcuda {

void release_storage(Locked& lock, const Allocation& allocation) {
  switch (allocation.kind) {
    case MemoryKind::kDevice:
    case MemoryKind::kPinned:
    case MemoryKind::kGraph:
      poison_and_give(lock, allocation);
      break;
    case MemoryKind::kPool:
      give_to_pool(lock, allocation);
      break;
    case MemoryKind::kManaged:
      munmap(reinterpret_cast<void*>(allocation.begin - kManagedGuard), kManagedGuard + allocation.bytes);
      break;
    // Registered memory is the program's; imported and mapped memory is let go by its owner's destructor.
    case MemoryKind::kRegistered:
    case MemoryKind::kMapped:
    case MemoryKind::kImported:
      break;
  }
}

}  // namespace simcuda
