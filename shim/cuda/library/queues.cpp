// See queues.hpp: each call through the hook that the program's own would reach, so that it is counted, and staged
// where that is faster.
#include "shim/cuda/library/queues.hpp"

#include <string.h>

#include <algorithm>

#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/library/answers.hpp"
#include "shim/cuda/library/devices.hpp"
#include "shim/cuda/library_side.hpp"
#include "shim/cuda/state.hpp"
#include "shim/library/queues.hpp"

namespace cistern::cuda {
namespace {

constexpr unsigned kWithoutTiming = 2;  // CU_EVENT_DISABLE_TIMING
constexpr unsigned kPortable = 1;       // CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTALLOC_PORTABLE

CUdeviceptr address(const library::BlockPart& part) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(part.block)) + part.offset;
}
CUstream stream(void* queue) { return static_cast<CUstream>(queue); }

// Another thread cannot wait by this name for work on the per-thread stream: the name means its own stream there.
bool is_for_all_threads(const void* queue) {
  constexpr std::uintptr_t kPerThread = 2;  // CU_STREAM_PER_THREAD
  return reinterpret_cast<std::uintptr_t>(queue) != kPerThread;
}

// --- Contexts
bool enter_context(void* context) {
  auto* const wanted = static_cast<CUcontext>(context);
  return current_context() != wanted && driver().cuCtxPushCurrent_v2(wanted) == kSuccess;
}

cistern_status find_context_of_request(void** context) {
  Context* found = nullptr;
  const CUresult answer = find_context(CISTERN_CURRENT, &found);
  if (answer == kSuccess) *context = found->handle();
  return status_of(answer);
}

// `work`, CUresult(), in the context that is meant.
template <class Work>
cistern_status on_device(int device, Work work) {
  const OnDevice there(device);
  return status_of(there ? work() : there.answer());
}

// --- Work. Without a queue the caller waits.
CUresult done(CUresult answer, void* queue) {
  return answer == kSuccess && !queue ? hook::cuStreamSynchronize(nullptr) : answer;
}

cistern_status copy(const library::BlockPart& target, const library::BlockPart& source, std::size_t bytes, int device,
                    void* queue) {
  return on_device(
      device, [&] { return done(hook::cuMemcpyAsync(address(target), address(source), bytes, stream(queue)), queue); });
}

cistern_status read_and_wait(const library::BlockPart& target, const library::BlockPart& source, std::size_t bytes,
                             int device, void* queue) {
  const OnDevice there(device);
  if (!there) return status_of(there.answer());
  const CUresult answer = hook::cuMemcpyAsync(address(target), address(source), bytes, stream(queue));
  return status_of(answer == kSuccess ? hook::cuStreamSynchronize(stream(queue)) : answer);
}

cistern_status wait(int device, void* queue) {
  return on_device(device, [&] { return hook::cuStreamSynchronize(stream(queue)); });
}

cistern_status wait_for_context(int device) {
  const OnDevice there(device);
  return status_of(there ? hook::cuCtxSynchronize() : there.answer());
}

cistern_status follow(int device, void* queue, void* other) {
  return on_device(device, [&] {
    CUevent reached = nullptr;
    CUresult answer = hook::cuEventCreate(&reached, kWithoutTiming);
    if (answer != kSuccess) return answer;
    answer = hook::cuEventRecord(reached, stream(other));
    if (answer == kSuccess) answer = hook::cuStreamWaitEvent(stream(queue), reached, 0);
    const CUresult ended = hook::cuEventDestroy_v2(reached);
    return answer == kSuccess ? ended : answer;
  });
}

// --- Fills
// All bytes of the pattern are the same.
bool is_of_one(const char* pattern, std::size_t bytes) {
  return std::all_of(pattern, pattern + bytes, [&](char byte) { return byte == *pattern; });
}

template <class Value>
Value value_of(const void* pattern) {
  Value value;
  memcpy(&value, pattern, sizeof value);
  return value;
}

// In the context that is meant.
cistern_status fill_here(const library::BlockPart& target, const void* pattern, std::size_t pattern_bytes,
                         std::size_t bytes, int device, void* queue) {
  const CUdeviceptr to = address(target);
  const bool is_whole = bytes % pattern_bytes == 0 && to % pattern_bytes == 0;
  if (is_of_one(static_cast<const char*>(pattern), pattern_bytes))
    return status_of(done(hook::cuMemsetD8Async(to, value_of<unsigned char>(pattern), bytes, stream(queue)), queue));
  if (is_whole && pattern_bytes == sizeof(std::uint16_t))
    return status_of(done(
        hook::cuMemsetD16Async(to, value_of<std::uint16_t>(pattern), bytes / pattern_bytes, stream(queue)), queue));
  if (is_whole && pattern_bytes == sizeof(std::uint32_t))
    return status_of(done(
        hook::cuMemsetD32Async(to, value_of<std::uint32_t>(pattern), bytes / pattern_bytes, stream(queue)), queue));
  const library::CopyAndWait here{
      [](const library::BlockPart& to, const library::BlockPart& from, std::size_t count, int, void* on) {
        return status_of(hook::cuMemcpyAsync(address(to), address(from), count, stream(on)));
      },
      [](int, void* on) { return status_of(hook::cuStreamSynchronize(stream(on))); }};
  return library::fill_by_copies(here, target, pattern, pattern_bytes, bytes, device, queue);
}

cistern_status fill(const library::BlockPart& target, const void* pattern, std::size_t pattern_bytes, std::size_t bytes,
                    int device, void* queue) {
  const OnDevice there(device);
  return there ? fill_here(target, pattern, pattern_bytes, bytes, device, queue) : status_of(there.answer());
}

// --- Queues of the library's own
cistern_status make(const library::QueueRequest& request, void** queue) {
  const OnDevice there(request.device);
  if (!there) return status_of(there.answer());
  CUstream made = nullptr;
  const CUresult answer = hook::cuStreamCreate(&made, kStreamNonBlocking);
  *queue = made;
  return status_of(answer);
}

cistern_status end(int device, void* queue) {
  const OnDevice there(device);
  return status_of(there ? hook::cuStreamDestroy_v2(stream(queue)) : there.answer());
}

// --- Page-locked memory
bool pin(void* memory, std::size_t bytes, int device) {
  const OnDevice there(device);
  return there && hook::cuMemHostRegister_v2(memory, bytes, kPortable) == kSuccess;
}

cistern_status unpin(void* memory, int device) {
  const OnDevice there(device);
  return status_of(there ? hook::cuMemHostUnregister(memory) : there.answer());
}

}  // namespace

extern constexpr library::KindQueues queues = {
    .queue_of_idle = [] { return static_cast<void*>(legacy_stream()); },
    .is_for_all_threads = is_for_all_threads,
    .current_context = [] { return static_cast<void*>(current_context()); },
    .find_context = find_context_of_request,
    .enter_context = enter_context,
    .leave_context = leave_context,
    .copy = copy,
    .read_and_wait = read_and_wait,
    .fill = fill,
    .follow = follow,
    .wait = wait,
    .is_no_queue = [](int code) { return code == kInvalidHandle; },
    .wait_for_context = wait_for_context,
    .make = make,
    .end = end,
    .pinned = &pinned_memory,
    .pinned_for_all = kPortable,
    .pin = pin,
    .unpin = unpin,
    // CUDA takes every address that no other kind knows.
    .is_theirs = [](const cistern_copy_request& what) { return !what.buffer; },
    .make_copy = make_copy,
    .end_thread = end_thread,
    .is_final = is_final,
};
static_assert(is_whole(queues));

}  // namespace cistern::cuda
