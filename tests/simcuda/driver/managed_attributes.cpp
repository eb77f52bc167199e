// cuMemRangeGetAttribute(s): what managed memory was advised, which here is never anything.
#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/memory.hpp"

using namespace simcuda;

namespace {

// [documented] The answer when nothing was advised or prefetched: not read mostly, invalid locations.
CUresult attribute_of(CUmem_range_attribute attribute, void* data, size_t bytes) {
  auto* numbers = static_cast<int*>(data);
  if (!data || bytes < sizeof *numbers || bytes % sizeof *numbers) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(attribute)) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *numbers = 0;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      *numbers = CU_DEVICE_INVALID;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      for (size_t index = 0; index < bytes / sizeof *numbers; ++index) numbers[index] = CU_DEVICE_INVALID;
      break;
    default:
      *numbers = 0;  // the types and numbers of locations: CU_MEM_LOCATION_TYPE_INVALID
  }
  return CUDA_SUCCESS;
}

bool is_managed(CUdeviceptr pointer, size_t bytes) {
  Locked lock = lock_driver();
  const Allocation* allocation = driver().allocations.find(to_address(pointer));
  return allocation && allocation->kind == MemoryKind::kManaged && bytes &&
         to_address(pointer) + bytes <= allocation->begin + allocation->bytes;
}

}  // namespace

extern "C" CUresult cuMemRangeGetAttribute(void* data, size_t data_bytes, CUmem_range_attribute attribute,
                                           CUdeviceptr pointer, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return is_managed(pointer, bytes) ? attribute_of(attribute, data, data_bytes) : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuMemRangeGetAttributes(void** data, size_t* data_bytes, CUmem_range_attribute* attributes,
                                            size_t count, CUdeviceptr pointer, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  if (!is_managed(pointer, bytes) || !data || !data_bytes || !attributes) return CUDA_ERROR_INVALID_VALUE;
  for (size_t index = 0; index < count; ++index)
    if (const CUresult wrong = attribute_of(attributes[index], data[index], data_bytes[index])) return wrong;
  return CUDA_SUCCESS;
}
