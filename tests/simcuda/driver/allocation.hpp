// Every piece of memory that the driver knows, found by any address inside it. O(log n).
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "tests/simcuda/driver/simcuda.hpp"

namespace simcuda {

struct Context;
struct MemoryPool;

enum class MemoryKind {
  kDevice,      // cuMemAlloc and its relatives
  kManaged,     // cuMemAllocManaged
  kPool,        // cuMemAllocAsync
  kGraph,       // a graph's memory node
  kPinned,      // cuMemAllocHost, cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
  kMapped,      // cuMemMap
  kImported,    // cuIpcOpenMemHandle
};

struct Allocation {
  uintptr_t begin = 0;
  size_t bytes = 0;  // as asked for
  MemoryKind kind = MemoryKind::kDevice;
  Context* context = nullptr;
  int device = 0;
  unsigned flags = 0;  // as given to cuMemHostAlloc, cuMemHostRegister, cuMemAllocManaged
  bool sync_memops = false;
  // A bit for each device that may read it, and that may write it. cuMemSetAccess sets those of virtual memory.
  uint64_t readers = ~uint64_t{0}, writers = ~uint64_t{0};
  MemoryPool* pool = nullptr;
  uint64_t buffer_id = 0;         // given by the table
  uint64_t block_id = 0;          // identifies the physical memory; the table sets it to the buffer_id where it is 0
  std::shared_ptr<void> owner{};  // objects that must live as long: imported file, virtual memory handle

  bool on_device() const {
    return kind != MemoryKind::kPinned && kind != MemoryKind::kRegistered && kind != MemoryKind::kManaged;
  }
  bool host_memory() const { return kind == MemoryKind::kPinned || kind == MemoryKind::kRegistered; }
  bool open_to(int ordinal, bool writes) const { return (writes ? writers : readers) >> ordinal & 1; }
};

class AllocationTable {
 public:
  // The allocation gets a new buffer id: [documented] unique in the process, another one at each allocation.
  Allocation& insert(Allocation allocation);
  // An id that no buffer has.
  uint64_t new_id() { return ++last_buffer_id_; }
  void erase(uintptr_t begin);
  // The allocation that contains the address, or null.
  Allocation* find(uintptr_t address);
  Allocation* find_exact(uintptr_t begin);
  bool overlaps(uintptr_t begin, size_t bytes) const;
  // Whether the whole range is known memory that some device may read: one allocation, or neighbours without a gap.
  bool covers(uintptr_t begin, size_t bytes);
  std::map<uintptr_t, Allocation>& all() { return by_begin_; }

 private:
  std::map<uintptr_t, Allocation> by_begin_;
  uint64_t last_buffer_id_ = 0;
};

}  // namespace simcuda
