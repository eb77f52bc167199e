// The functions of virtual memory management share this: physical memory, and the granularity of all of it.
#pragma once
#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/settings.hpp"

namespace simcuda {

constexpr size_t kHostPage = 4096;

// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR and _FABRIC; older headers lack the second.
constexpr unsigned kDescriptorHandle = 1, kFabricHandle = 8;
// CU_MEM_LOCATION_TYPE_HOST and _HOST_NUMA, which older headers lack.
constexpr int kHostLocation = 2, kHostNumaLocation = 3;

// The first line of these functions. [documented] They answer 801 where the device has no virtual memory management.
#define SIMCUDA_VIRTUAL_MEMORY_CALL(kind) \
  SIMCUDA_CALL(kind);                     \
  if (settings.vmm <= 0) return CUDA_ERROR_NOT_SUPPORTED

// [documented] Sizes and addresses of memory are multiples of the minimum granularity.
inline size_t granularity() { return static_cast<size_t>(settings.vmm_granularity.load()); }

// Memory that cuMemCreate made. It is a part of the device's window, or has a file of its own. Handles and mappings own
// it together.
struct PhysicalMemory {
  PhysicalMemory(size_t size, const CUmemAllocationProp& wanted) : bytes(size), properties(wanted) {}
  ~PhysicalMemory();
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  const size_t bytes;
  const CUmemAllocationProp properties;
  Device* device = nullptr;  // null: memory of the host
  uintptr_t in_device = 0;   // its place in the device's window; 0: it has a file of its own
  int own_file = -1;
  size_t counted = 0;  // the part of the device's used bytes
  uint64_t id = 0;     // the program's handle; no other memory ever has the same

  int file() const;
  size_t offset() const;  // in the file
};

using PhysicalPointer = std::shared_ptr<PhysicalMemory>;

// Null: no such handle.
PhysicalPointer find_physical(Locked&, CUmemGenericAllocationHandle handle);
// Gives the memory its handle, with one reference.
CUmemGenericAllocationHandle publish(Locked&, const PhysicalPointer& memory);

// Memory of the host and memory that other processes may open have files of their own. False: there is no descriptor.
bool make_own_file(PhysicalMemory& memory);

}  // namespace simcuda
