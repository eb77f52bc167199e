// cuStreamWaitValue and cuStreamWriteValue: a stream that waits for a word in memory, or writes one.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/copy.hpp"
#include "tests/simcuda/driver/device_work.hpp"
#include "tests/simcuda/driver/memory.hpp"

using namespace simcuda;

namespace {

template <typename Word>
std::atomic_ref<Word> word_at(CUdeviceptr pointer) {
  return std::atomic_ref<Word>(*reinterpret_cast<Word*>(pointer));
}

// [documented] The four conditions; "greater or equal" is cyclic.
template <typename Word>
bool holds(Word seen, Word value, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<Word>>(seen - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return seen == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (seen & value) != 0;
    default:
      return static_cast<Word>(~(seen | value)) != 0;
  }
}

// [documented] Device memory, or host memory that was allocated or registered; never managed memory. [assumed] Anything
// else, and a word that is not aligned, is an invalid value.
template <typename Word>
bool is_word(Locked& lock, CUdeviceptr pointer) {
  const Allocation* allocation = driver().allocations.find(to_address(pointer));
  return allocation && allocation->kind != MemoryKind::kManaged && pointer % sizeof(Word) == 0 &&
         is_device_range(lock, to_address(pointer), sizeof(Word));
}

template <typename Word>
CUresult queue(const char* name, CUstream stream_handle, CUdeviceptr pointer, std::function<void(const Context&)> work,
               bool writes) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  if (!is_word<Word>(lock, pointer)) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture) return refuse((std::string(name) + " while its stream is captured").c_str());
  Task task{CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            [work, context = stream->context] { touch_memory([&] { work(*context); }); }};
  add_touched(lock, task.touched, {to_address(pointer), sizeof(Word), writes});
  return enqueue(lock, stream, std::move(task));
}

// A stream that waits for what never comes waits forever, as on a device; but an error of its context ends it.
template <typename Word>
CUresult wait(const char* name, CUstream stream, CUdeviceptr pointer, Word value, unsigned flags) {
  // [documented] Flushing is for selected platforms, which have an attribute: this is none.
  if (flags & CU_STREAM_WAIT_VALUE_FLUSH) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  return queue<Word>(
      name, stream, pointer,
      [pointer, value, flags](const Context& context) {
        while (!holds(word_at<Word>(pointer).load(), value, flags) && context.sticky == CUDA_SUCCESS) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
          stop_at_teardown();
        }
      },
      false);
}

// [documented] What was written before is seen by whoever sees this; the flag that waives it is not for version 2.
template <typename Word>
CUresult write(const char* name, CUstream stream, CUdeviceptr pointer, Word value, unsigned flags,
               unsigned known_flags) {
  if (flags & ~known_flags) return CUDA_ERROR_INVALID_VALUE;
  return queue<Word>(
      name, stream, pointer, [pointer, value](const Context&) { word_at<Word>(pointer).store(value); }, true);
}

}  // namespace

#define SIMCUDA_STREAM_VALUE(name, Word, ...)                                                                \
  extern "C" CUresult name(CUstream stream, CUdeviceptr pointer, Word value, unsigned flags) {               \
    SIMCUDA_CALL(kOrdinary);                                                                                 \
    return __VA_ARGS__;                                                                                      \
  }                                                                                                          \
  SIMCUDA_PER_THREAD_STREAM(name, _ptsz, (CUstream stream, CUdeviceptr pointer, Word value, unsigned flags), \
                            (stream, pointer, value, flags))

#define SIMCUDA_WAIT_VALUE(name, Word) \
  SIMCUDA_STREAM_VALUE(name, Word, wait<Word>(#name, stream, pointer, value, flags))
#define SIMCUDA_WRITE_VALUE(name, Word, known_flags) \
  SIMCUDA_STREAM_VALUE(name, Word, write<Word>(#name, stream, pointer, value, flags, known_flags))

SIMCUDA_WAIT_VALUE(cuStreamWaitValue32, cuuint32_t)
SIMCUDA_WAIT_VALUE(cuStreamWaitValue32_v2, cuuint32_t)
SIMCUDA_WAIT_VALUE(cuStreamWaitValue64, cuuint64_t)
SIMCUDA_WAIT_VALUE(cuStreamWaitValue64_v2, cuuint64_t)
SIMCUDA_WRITE_VALUE(cuStreamWriteValue32, cuuint32_t, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
SIMCUDA_WRITE_VALUE(cuStreamWriteValue32_v2, cuuint32_t, 0)
SIMCUDA_WRITE_VALUE(cuStreamWriteValue64, cuuint64_t, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
SIMCUDA_WRITE_VALUE(cuStreamWriteValue64_v2, cuuint64_t, 0)
