// cuArrayCreate, cuArray3DCreate, their descriptors and their end.
#include "tests/simcuda/driver/array.hpp"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/memory.hpp"

namespace simcuda {
namespace {

std::unordered_map<CUarray, std::unique_ptr<Array>>& arrays() {
  static auto& all = *new std::unordered_map<CUarray, std::unique_ptr<Array>>;
  return all;
}

size_t bytes_of(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

CUresult create(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  const size_t element = bytes_of(descriptor.Format) * descriptor.NumChannels;
  // [documented] 1, 2 or 4 channels; a height or depth of 0 means fewer dimensions.
  const bool channels = descriptor.NumChannels == 1 || descriptor.NumChannels == 2 || descriptor.NumChannels == 4;
  if (!handle || !element || !channels || !descriptor.Width) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  auto array = std::make_unique<Array>();
  array->context = context;
  array->descriptor = descriptor;
  array->row_bytes = descriptor.Width * element;
  array->rows = std::max<size_t>(descriptor.Height, 1);
  array->bytes = array->row_bytes * array->rows * std::max<size_t>(descriptor.Depth, 1);
  array->address = take_device_memory(lock, *context->device, array->bytes);
  if (!array->address) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUarray>(array.get());
  arrays().emplace(*handle, std::move(array));
  return CUDA_SUCCESS;
}

void release(Locked& lock, const Array& array) {
  poison_and_give(lock, {.begin = array.address, .bytes = array.bytes, .device = array.context->device->ordinal});
}

}  // namespace

Array* find_array(Locked&, CUarray handle) {
  const auto found = arrays().find(handle);
  return found == arrays().end() ? nullptr : found->second.get();
}

void drop_arrays_of(Locked& lock, Context& context) {
  for (auto entry = arrays().begin(); entry != arrays().end();) {
    const std::unique_ptr<Array>& array = entry->second;
    if (array->context != &context) {
      ++entry;
      continue;
    }
    give_device_memory(lock, *context.device, array->address, array->bytes);
    entry = arrays().erase(entry);
  }
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuArrayCreate_v2(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  SIMCUDA_CALL(kUnsafe | kAllocates);
  if (!descriptor) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR full{};
  full.Width = descriptor->Width;
  full.Height = descriptor->Height;
  full.Format = descriptor->Format;
  full.NumChannels = descriptor->NumChannels;
  return create(handle, full);
}

extern "C" CUresult cuArray3DCreate_v2(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  SIMCUDA_CALL(kUnsafe | kAllocates);
  return descriptor ? create(handle, *descriptor) : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray handle) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  const Array* array = find_array(lock, handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR& full = array->descriptor;
  *descriptor = {full.Width, full.Height, full.Format, full.NumChannels};
  return CUDA_SUCCESS;
}

extern "C" CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray handle) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  const Array* array = find_array(lock, handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *descriptor = array->descriptor;
  return CUDA_SUCCESS;
}

// [assumed] It waits for the context's work, as freeing memory does.
extern "C" CUresult cuArrayDestroy(CUarray handle) {
  SIMCUDA_CALL(kUnsafe | kFrees);
  Locked lock = lock_driver();
  const Array* array = find_array(lock, handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  wait_for(lock, unfinished_in(lock, *array->context));
  const auto found = arrays().find(handle);
  if (found == arrays().end()) return CUDA_ERROR_INVALID_HANDLE;
  const Array gone = *found->second;
  arrays().erase(found);
  release(lock, gone);
  return CUDA_SUCCESS;
}
