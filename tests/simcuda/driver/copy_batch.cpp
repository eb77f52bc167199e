// Batches of copies, which CUDA 12.8 brought: each copy has attributes that say when its source is read.
#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/copy.hpp"

#if CUDA_VERSION >= 12080
using namespace simcuda;

namespace {

struct Batch {
  CUdeviceptr* to;
  CUdeviceptr* from;
  size_t* bytes;
  size_t count;
  CUmemcpyAttributes* attributes;
  size_t* first_copies;  // of each attribute; ascending, the first is 0
  size_t attribute_count;
};

const CUmemcpyAttributes& attributes_of(const Batch& batch, size_t copy_index) {
  size_t chosen = 0;
  while (chosen + 1 < batch.attribute_count && batch.first_copies[chosen + 1] <= copy_index) ++chosen;
  return batch.attributes[chosen];
}

bool make_side(Locked& lock, uintptr_t address, size_t bytes, Side& side) {
  side = {address, bytes, bytes};
  describe_memory(lock, side);
  return side.pageable || is_device_range(lock, address, bytes);
}

// [documented] With CU_MEMCPY_SRC_ACCESS_ORDER_STREAM a pageable source too is read in stream order, after the call;
// with DURING_API_CALL not later than the call, as by cuMemcpyAsync. [assumed] With ANY as late as with STREAM.
CUresult copy_one(Locked& lock, const StreamPointer& stream, uintptr_t to, uintptr_t from, size_t bytes,
                  const CUmemcpyAttributes& attributes) {
  ShapedCopy what{{}, {}, {.row_bytes = bytes}};
  if (!bytes || !make_side(lock, to, bytes, what.to) || !make_side(lock, from, bytes, what.from))
    return CUDA_ERROR_INVALID_VALUE;
  switch (attributes.srcAccessOrder) {
    case CU_MEMCPY_SRC_ACCESS_ORDER_STREAM:
    case CU_MEMCPY_SRC_ACCESS_ORDER_ANY:
      return copy(lock, stream, what, CopyCall::kInStreamOrder);
    case CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL:
      return copy(lock, stream, what, CopyCall::kAsynchronous);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// [assumed] The copies run one after another; what comes before one that fails is done.
CUresult copy_all(const Batch& batch, size_t* failed, CUstream stream_handle) {
  if (failed) *failed = SIZE_MAX;
  if (!batch.count || !batch.to || !batch.from || !batch.bytes || !batch.attributes || !batch.first_copies ||
      !batch.attribute_count || batch.attribute_count > batch.count || batch.first_copies[0])
    return CUDA_ERROR_INVALID_VALUE;
  // [documented] Not in the legacy stream.
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  if (stream->kind == StreamKind::kLegacy) return CUDA_ERROR_INVALID_VALUE;
  for (size_t index = 0; index < batch.count; ++index) {
    result =
        copy_one(lock, stream, batch.to[index], batch.from[index], batch.bytes[index], attributes_of(batch, index));
    if (result == CUDA_SUCCESS) continue;
    if (failed) *failed = index;
    return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                                       CUmemcpyAttributes* attributes, size_t* first_copies, size_t attribute_count,
                                       size_t* failed, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return copy_all({to, from, bytes, count, attributes, first_copies, attribute_count}, failed, stream);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyBatchAsync, _ptsz,
                          (CUdeviceptr * to, CUdeviceptr* from, size_t* bytes, size_t count,
                           CUmemcpyAttributes* attributes, size_t* first_copies, size_t attribute_count, size_t* failed,
                           CUstream stream),
                          (to, from, bytes, count, attributes, first_copies, attribute_count, failed, stream))

// The form of CUDA 13, which does not say which copy failed.
extern "C" CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                                          CUmemcpyAttributes* attributes, size_t* first_copies, size_t attribute_count,
                                          CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return copy_all({to, from, bytes, count, attributes, first_copies, attribute_count}, nullptr, stream);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyBatchAsync_v2, _ptsz,
                          (CUdeviceptr * to, CUdeviceptr* from, size_t* bytes, size_t count,
                           CUmemcpyAttributes* attributes, size_t* first_copies, size_t attribute_count,
                           CUstream stream),
                          (to, from, bytes, count, attributes, first_copies, attribute_count, stream))

// Of a later toolkit than the headers.
extern "C" CUresult cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                                CUmemcpyAttributes* attributes, CUstream stream_handle) {
  SIMCUDA_CALL(kOrdinary);
  if (!attributes) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  return stream ? copy_one(lock, stream, to, from, bytes, *attributes) : result;
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyWithAttributesAsync, _ptsz,
                          (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes* attributes,
                           CUstream stream),
                          (to, from, bytes, attributes, stream))
#endif
