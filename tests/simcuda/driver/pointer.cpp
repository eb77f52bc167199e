// cuPointerGetAttribute(s) and cuPointerSetAttribute: what the driver says of an address.
#include "tests/simcuda/driver/address_space.hpp"
#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/virtual_memory.hpp"

namespace simcuda {
namespace {

struct Answer {
  CUresult result;
  unsigned long long value;
};

// Null: it is not virtual memory.
const PhysicalMemory* physical_of(const Allocation& allocation) {
  return allocation.kind == MemoryKind::kMapped ? static_cast<const PhysicalMemory*>(allocation.owner.get()) : nullptr;
}

// [cited: open-mpi/ompi #12751] Virtual memory on the host is of host type, whoever may access it.
CUmemorytype type_of(const Allocation& allocation) {
  const PhysicalMemory* physical = physical_of(allocation);
  return allocation.host_memory() || (physical && !physical->device) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

// [documented] Virtual memory must have been made for it.
bool can_rdma(const Allocation& allocation) {
  const PhysicalMemory* physical = physical_of(allocation);
  return settings.rdma && allocation.on_device() && (!physical || physical->properties.allocFlags.gpuDirectRDMACapable);
}

unsigned handle_types(const Allocation& allocation) {
  const PhysicalMemory* physical = physical_of(allocation);
  return physical ? static_cast<unsigned>(physical->properties.requestedHandleTypes) : 0;
}

unsigned access_flags(const Allocation& allocation) {
  CUresult ignored;
  const Context* context = current_context(ignored);
  const int device = context ? context->device->ordinal : allocation.device;
  if (allocation.open_to(device, true)) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return allocation.open_to(device, false) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

bool mapped_on_host(const Allocation& allocation) {
  return allocation.host_memory() || allocation.kind == MemoryKind::kManaged;
}

size_t unit_of(const Allocation& allocation) {
  return allocation.on_device() ? driver().devices[static_cast<size_t>(allocation.device)]->granule : kGranule;
}

// First address and size. [measured] A small pinned block lies in a mapping of 2 MiB. [assumed] One of the device too.
std::pair<uintptr_t, size_t> mapping_of(const Allocation& allocation) {
  constexpr size_t kMappingUnit = size_t{2} << 20;
  if (allocation.kind == MemoryKind::kMapped)
    return {allocation.begin, round_up(allocation.bytes, unit_of(allocation))};
  const uintptr_t first = allocation.begin / kMappingUnit * kMappingUnit;
  return {first, round_up(allocation.begin + allocation.bytes - first, kMappingUnit)};
}

// The attributes of known memory, each as a number; their width is below.
Answer attribute_of(const Allocation& allocation, CUpointer_attribute attribute, uintptr_t address) {
  constexpr CUresult kNo = CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // [measured] Memory of a pool and virtual memory belong to no context: null.
      return {CUDA_SUCCESS,
              allocation.pool || physical_of(allocation) ? 0 : reinterpret_cast<uintptr_t>(allocation.context)};
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return {CUDA_SUCCESS, type_of(allocation)};
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return {CUDA_SUCCESS, address};
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      // [documented] Invalid for memory that the host cannot reach.
      return {mapped_on_host(allocation) ? CUDA_SUCCESS : kNo, address};
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      // [measured] Managed memory has it from its start.
      return {CUDA_SUCCESS, allocation.sync_memops || allocation.kind == MemoryKind::kManaged};
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return {CUDA_SUCCESS, allocation.buffer_id};
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return {CUDA_SUCCESS, allocation.kind == MemoryKind::kManaged};
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return {CUDA_SUCCESS, static_cast<unsigned long long>(allocation.device)};
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return {CUDA_SUCCESS, allocation.kind == MemoryKind::kDevice};
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return {CUDA_SUCCESS, allocation.begin};
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return {CUDA_SUCCESS, mapping_of(allocation).first};
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return {CUDA_SUCCESS, allocation.bytes};
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return {CUDA_SUCCESS, mapping_of(allocation).second};
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return {CUDA_SUCCESS, 1};
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return {CUDA_SUCCESS, handle_types(allocation)};
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return {CUDA_SUCCESS, can_rdma(allocation)};
    // [assumed] What the current context's device may do.
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return {CUDA_SUCCESS, access_flags(allocation)};
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return {CUDA_SUCCESS, reinterpret_cast<uintptr_t>(allocation.pool)};
    // [documented] The physical memory's. [assumed] What was not mapped is a block of its own.
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return {CUDA_SUCCESS, allocation.block_id};
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      refuse("CU_POINTER_ATTRIBUTE_P2P_TOKENS");
      return {kNo, 0};
    default:
      return {static_cast<int>(attribute) == 21 ? CUDA_SUCCESS : kNo, 0};  // decompression: no
  }
}

// Answers for any address. [measured] The range of virtual memory is the whole reservation. Every attribute of freed
// memory, and of reserved addresses where nothing is mapped, is an invalid value.
Answer answer_of(Locked& lock, const Allocation* allocation, CUpointer_attribute attribute, uintptr_t address) {
  if (!allocation) return {CUDA_ERROR_INVALID_VALUE, 0};
  const Reservation reserved = reservation_of(lock, address);
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR && reserved.bytes) return {CUDA_SUCCESS, reserved.begin};
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE && reserved.bytes) return {CUDA_SUCCESS, reserved.bytes};
  return attribute_of(*allocation, attribute, address);
}

// The answer in the type that the header's comments name.
void store(CUpointer_attribute attribute, unsigned long long value, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<unsigned long long*>(data) = value;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      *static_cast<unsigned char*>(data) = static_cast<unsigned char>(value);
      break;
    default:
      *static_cast<unsigned*>(data) = static_cast<unsigned>(value);
  }
}

// [documented] What cuPointerGetAttributes gives for memory that the driver does not know: zeros, no error. [measured]
// The host pointer is the address itself.
void store_unknown(CUpointer_attribute attribute, uintptr_t pointer, void* data) {
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
    *static_cast<int*>(data) = -2;
  else if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER)
    store(attribute, pointer, data);
  else
    store(attribute, 0, data);
}

}  // namespace
}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  SIMCUDA_CALL(kContextless);
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  const Allocation* allocation = driver().allocations.find(to_address(pointer));
  // [documented] Unknown memory: invalid value.
  const Answer answer = answer_of(lock, allocation, attribute, to_address(pointer));
  if (answer.result == CUDA_SUCCESS) store(attribute, answer.value, data);
  return answer.result;
}

extern "C" CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                           CUdeviceptr pointer) {
  SIMCUDA_CALL(kContextless);
  if (!attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  const Allocation* allocation = driver().allocations.find(to_address(pointer));
  for (unsigned index = 0; index < count; ++index) {
    if (!data[index]) return CUDA_ERROR_INVALID_VALUE;
    const Answer answer = answer_of(lock, allocation, attributes[index], to_address(pointer));
    if (answer.result == CUDA_SUCCESS)
      store(attributes[index], answer.value, data[index]);
    else
      store_unknown(attributes[index], to_address(pointer), data[index]);
  }
  return CUDA_SUCCESS;
}

// [documented] Only SYNC_MEMOPS can be set, for device memory.
extern "C" CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  Allocation* allocation = driver().allocations.find(to_address(pointer));
  if (!value || !allocation || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !allocation->on_device())
    return CUDA_ERROR_INVALID_VALUE;
  // [cited: openucx/ucx #9895] Not of virtual memory. [assumed] Unless it was made for RDMA.
  if (physical_of(*allocation) && !can_rdma(*allocation)) return CUDA_ERROR_NOT_SUPPORTED;
  allocation->sync_memops = *static_cast<const unsigned*>(value) != 0;
  return CUDA_SUCCESS;
}
