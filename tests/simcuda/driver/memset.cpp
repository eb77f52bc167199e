// cuMemset*: one element size after the other, lines with or without a pitch.
#include "tests/simcuda/driver/memset.hpp"
#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/copy.hpp"
#include "tests/simcuda/driver/device_work.hpp"

namespace simcuda {

template <typename Element>
static void fill_rows(uintptr_t address, const Fill& fill) {
  for (size_t row = 0; row < fill.rows; ++row) {
    auto* line = reinterpret_cast<Element*>(address + row * fill.pitch);
    for (size_t index = 0; index < fill.width; ++index) line[index] = static_cast<Element>(fill.value);
  }
}

static void fill_all(uintptr_t address, const Fill& fill) {
  switch (fill.element_bytes) {
    case 1:
      return fill_rows<uint8_t>(address, fill);
    case 2:
      return fill_rows<uint16_t>(address, fill);
    default:
      return fill_rows<uint32_t>(address, fill);
  }
}

Task fill_task(Locked& lock, uintptr_t address, const Fill& fill) {
  Task task{CU_GRAPH_NODE_TYPE_MEMSET, [address, fill] { touch_memory([&] { fill_all(address, fill); }); }};
  const size_t rows_before_last = fill.rows > 1 ? fill.rows - 1 : 0;
  add_touched(lock, task.touched, {address, rows_before_last * fill.pitch + fill.width * fill.element_bytes, true});
  return task;
}

}  // namespace simcuda

using namespace simcuda;

namespace {

// [documented] Memsets are asynchronous to the host, the "synchronous" ones too. [assumed] Of pinned host memory too.
CUresult fill(CUdeviceptr pointer, const Fill& what, CUstream stream_handle) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  const size_t line = what.width * what.element_bytes;
  const size_t bytes = what.rows ? (what.rows - 1) * what.pitch + line : 0;
  // [documented] The address and the pitch must be multiples of the element size.
  const bool aligned = pointer % what.element_bytes == 0 && (what.rows <= 1 || what.pitch % what.element_bytes == 0);
  if (!aligned || (what.rows > 1 && what.pitch < line)) return CUDA_ERROR_INVALID_VALUE;
  if (!line || !what.rows) return CUDA_SUCCESS;
  if (!is_device_range(lock, pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(lock, stream, fill_task(lock, pointer, what));
}

}  // namespace

#define SIMCUDA_MEMSET(bits, Type)                                                                             \
  extern "C" CUresult cuMemsetD##bits##_v2(CUdeviceptr pointer, Type value, size_t count) {                    \
    SIMCUDA_CALL(kOrdinary);                                                                                   \
    return fill(pointer, {sizeof(Type), value, count, 1, 0}, nullptr);                                         \
  }                                                                                                            \
  SIMCUDA_PER_THREAD_STREAM(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr pointer, Type value, size_t count),      \
                            (pointer, value, count))                                                           \
  extern "C" CUresult cuMemsetD##bits##Async(CUdeviceptr pointer, Type value, size_t count, CUstream stream) { \
    SIMCUDA_CALL(kOrdinary);                                                                                   \
    return fill(pointer, {sizeof(Type), value, count, 1, 0}, stream);                                          \
  }                                                                                                            \
  SIMCUDA_PER_THREAD_STREAM(cuMemsetD##bits##Async, _ptsz,                                                     \
                            (CUdeviceptr pointer, Type value, size_t count, CUstream stream),                  \
                            (pointer, value, count, stream))                                                   \
  extern "C" CUresult cuMemsetD2D##bits##_v2(CUdeviceptr pointer, size_t pitch, Type value, size_t width,      \
                                             size_t height) {                                                  \
    SIMCUDA_CALL(kOrdinary);                                                                                   \
    return fill(pointer, {sizeof(Type), value, width, height, pitch}, nullptr);                                \
  }                                                                                                            \
  SIMCUDA_PER_THREAD_STREAM(cuMemsetD2D##bits##_v2, _ptds,                                                     \
                            (CUdeviceptr pointer, size_t pitch, Type value, size_t width, size_t height),      \
                            (pointer, pitch, value, width, height))                                            \
  extern "C" CUresult cuMemsetD2D##bits##Async(CUdeviceptr pointer, size_t pitch, Type value, size_t width,    \
                                               size_t height, CUstream stream) {                               \
    SIMCUDA_CALL(kOrdinary);                                                                                   \
    return fill(pointer, {sizeof(Type), value, width, height, pitch}, stream);                                 \
  }                                                                                                            \
  SIMCUDA_PER_THREAD_STREAM(                                                                                   \
      cuMemsetD2D##bits##Async, _ptsz,                                                                         \
      (CUdeviceptr pointer, size_t pitch, Type value, size_t width, size_t height, CUstream stream),           \
      (pointer, pitch, value, width, height, stream))

SIMCUDA_MEMSET(8, unsigned char)
SIMCUDA_MEMSET(16, unsigned short)
SIMCUDA_MEMSET(32, unsigned int)
