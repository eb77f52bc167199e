// Mappings of physical memory at reserved addresses, and which devices may use them.
#include "tests/simcuda/driver/virtual_memory.hpp"

#include <sys/mman.h>

#include "tests/simcuda/driver/address_space.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/touched.hpp"

namespace simcuda {
namespace {

// The host's bit among those of devices.
constexpr int kHost = 63;

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

const PhysicalMemory& physical(const Allocation& mapping) {
  return *static_cast<const PhysicalMemory*>(mapping.owner.get());
}

bool close_addresses(uintptr_t address, size_t bytes) {
  return mmap(at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) !=
         MAP_FAILED;
}

// The mappings in the range. Empty unless they fill it exactly.
std::vector<Allocation*> mappings_in(uintptr_t address, size_t bytes) {
  std::vector<Allocation*> found;
  for (const uintptr_t end = address + bytes; address < end;) {
    Allocation* mapping = driver().allocations.find_exact(address);
    if (!mapping || mapping->kind != MemoryKind::kMapped || address + mapping->bytes > end) return {};
    found.push_back(mapping);
    address += mapping->bytes;
  }
  return found;
}

// Inside one reservation, where nothing is mapped yet.
bool is_free(Locked& lock, uintptr_t address, size_t bytes) {
  const Reservation reserved = reservation_of(lock, address);
  return bytes <= reserved.bytes && address - reserved.begin <= reserved.bytes - bytes &&
         !driver().allocations.overlaps(address, bytes);
}

// [documented] The mapping begins at the handle's start. [measured] It has all of the handle's memory: 801 for less.
// [documented] No device has access until cuMemSetAccess gives it.
CUresult map(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle) {
  Locked lock = lock_driver();
  const PhysicalPointer memory = find_physical(lock, handle);
  if (!memory || offset || !bytes || bytes > memory->bytes || bytes % granularity() || pointer % granularity() ||
      !is_free(lock, to_address(pointer), bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (bytes < memory->bytes) return CUDA_ERROR_NOT_SUPPORTED;
  if (mmap(at(to_address(pointer)), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->file(),
           static_cast<off_t>(memory->offset())) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  madvise(at(to_address(pointer)), bytes, MADV_DONTFORK);
  // [assumed] It belongs to no context, and outlives them all.
  driver().allocations.insert({.begin = to_address(pointer),
                               .bytes = bytes,
                               .kind = MemoryKind::kMapped,
                               .device = memory->device ? memory->device->ordinal : 0,
                               .readers = 0,
                               .writers = 0,
                               .block_id = memory->id,
                               .owner = memory});
  return CUDA_SUCCESS;
}

// [documented] Whole mappings only. It does not wait for the device [cited: openxla/xla #41652, vllm-project/vllm
// #43020, NVIDIA/TensorRT-LLM #11641], [measured]: commands that touch the memory later fault. [measured] Addresses of
// a reservation without memory are unmapped with success.
CUresult unmap(CUdeviceptr pointer, size_t bytes) {
  Locked lock = lock_driver();
  const auto mappings = mappings_in(to_address(pointer), bytes);
  if (mappings.empty())
    return bytes && is_free(lock, to_address(pointer), bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  counters.unmapped_in_use += count_in_flight_on(lock, to_address(pointer), bytes);
  for (const Allocation* mapping : mappings) {
    close_addresses(mapping->begin, mapping->bytes);
    driver().allocations.erase(mapping->begin);
  }
  return CUDA_SUCCESS;
}

// The bit of a location in an allocation's readers and writers. 64: this memory has no access from there.
int bit_of(const CUmemLocation& location, const PhysicalMemory& memory) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return find_device(location.id) ? location.id : 64;
  const int type = location.type;
  // [documented] The host's nodes have no access to memory of a device. [assumed] The host has none either.
  return (type == kHostLocation || type == kHostNumaLocation) && !memory.device ? kHost : 64;
}

CUresult check_access(const std::vector<Allocation*>& mappings, const CUmemAccessDesc& wanted) {
  if (wanted.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && wanted.flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
      wanted.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return CUDA_ERROR_INVALID_VALUE;
  for (const Allocation* mapping : mappings) {
    const bool device = wanted.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (bit_of(wanted.location, physical(*mapping)) == 64)
      return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    // [cited: pytorch/pytorch #192330] WSL 2 says that it can do this, makes such memory, and fails here.
    if (settings.rdma_access_fails && physical(*mapping).properties.allocFlags.gpuDirectRDMACapable)
      return CUDA_ERROR_UNKNOWN;
  }
  return CUDA_SUCCESS;
}

void set_bit(uint64_t& bits, int bit, bool on) { bits = on ? bits | uint64_t{1} << bit : bits & ~(uint64_t{1} << bit); }

// The host's pages know no devices, so they allow what any device may do. may_touch() finds the devices that may not.
bool open_addresses(const Allocation& mapping) {
  const int protection = (mapping.readers ? PROT_READ : 0) | (mapping.writers ? PROT_WRITE : 0);
  return mprotect(at(mapping.begin), mapping.bytes, protection) == 0;
}

// [documented] The range must be mapped without a gap. [assumed] A call that fails changes nothing.
CUresult set_access(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* wanted, size_t count) {
  Locked lock = lock_driver();
  const auto mappings = mappings_in(to_address(pointer), bytes);
  if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t index = 0; index < count; ++index)
    if (const CUresult wrong = check_access(mappings, wanted[index])) return wrong;
  for (Allocation* mapping : mappings) {
    for (size_t index = 0; index < count; ++index) {
      const int bit = bit_of(wanted[index].location, physical(*mapping));
      set_bit(mapping->readers, bit, wanted[index].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
      set_bit(mapping->writers, bit, wanted[index].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    if (!open_addresses(*mapping)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                             unsigned long long flags) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless);
  return flags ? CUDA_ERROR_INVALID_VALUE : map(pointer, bytes, offset, handle);
}

extern "C" CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kUnsafe | kContextless);
  return unmap(pointer, bytes);
}

extern "C" CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* wanted, size_t count) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless);
  return wanted && count ? set_access(pointer, bytes, wanted, count) : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless);
  Locked lock = lock_driver();
  const Allocation* mapping = driver().allocations.find(to_address(pointer));
  if (!flags || !location || !mapping) return CUDA_ERROR_INVALID_VALUE;
  if (mapping->kind != MemoryKind::kMapped) {  // [measured] no access was set, and that is no error
    *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  }
  const int bit = bit_of(*location, physical(*mapping));
  if (bit == 64) return CUDA_ERROR_INVALID_VALUE;
  *flags = mapping->open_to(bit, true)    ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : mapping->open_to(bit, false) ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                          : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}
