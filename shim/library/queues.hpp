// What the library itself does on streams and queues beside cistern/queue.h.
#pragma once
#include "shim/library/library.hpp"

namespace cistern::library {

// From a device to memory of the host, which is there when this returns, as all is that was enqueued before on this
// queue.
cistern_status read_and_wait(const cistern_part& target, const cistern_part& source, std::size_t bytes, int device,
                             void* queue);

// CUDA's name for each thread's own stream: what one thread enqueues there no other one can wait for by it.
inline bool is_of_each_thread(cistern_kind kind, const void* queue) {
  constexpr std::uintptr_t kPerThread = 2;  // CU_STREAM_PER_THREAD
  return kind != CISTERN_OPENCL && reinterpret_cast<std::uintptr_t>(queue) == kPerThread;
}

}  // namespace cistern::library
