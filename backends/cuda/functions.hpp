// The real driver functions that the CUDA backends call, filled by whoever composes, and the gate before calls of our
// own.
#pragma once
#include <unistd.h>

#include <atomic>

#include "backends/cuda/api.hpp"

namespace cistern::cuda {

struct Functions {
  CUresult (*memory_allocate)(CUdeviceptr*, std::size_t) = nullptr;
  CUresult (*memory_free)(CUdeviceptr) = nullptr;
  CUresult (*host_allocate)(void**, std::size_t, unsigned) = nullptr;  // cuMemHostAlloc
  CUresult (*host_allocate_plain)(void**, std::size_t) = nullptr;      // cuMemAllocHost
  CUresult (*host_free)(void*) = nullptr;
  CUresult (*context_current)(CUcontext*) = nullptr;
  CUresult (*context_push)(CUcontext) = nullptr;
  CUresult (*context_pop)(CUcontext*) = nullptr;
  CUresult (*context_synchronize)() = nullptr;
  CUresult (*event_create)(CUevent*, unsigned) = nullptr;
  CUresult (*event_record)(CUevent, CUstream) = nullptr;
  CUresult (*event_query)(CUevent) = nullptr;
  CUresult (*event_elapsed)(float*, CUevent, CUevent) = nullptr;
  CUresult (*event_destroy)(CUevent) = nullptr;
  CUresult (*stream_query)(CUstream) = nullptr;
  CUresult (*stream_synchronize)(CUstream) = nullptr;
  CUresult (*copy_to_device)(CUdeviceptr, const void*, std::size_t, CUstream) = nullptr;  // cuMemcpyHtoDAsync
  CUresult (*copy_to_host)(void*, CUdeviceptr, std::size_t, CUstream) = nullptr;
  CUresult (*copy_shape)(const CUDA_MEMCPY3D*, CUstream) = nullptr;  // cuMemcpy3DAsync
  CUresult (*pointer_attribute)(void*, int, CUdeviceptr) = nullptr;
  CUresult (*address_range)(CUdeviceptr*, std::size_t*, CUdeviceptr) = nullptr;
  CUresult (*device_attribute)(int*, int, CUdevice) = nullptr;
  CUresult (*exchange_capture_mode)(int*) = nullptr;  // null in drivers before 10.1
};

// Calls of our own are made only while no stream captures (many calls would invalidate the capture, whatever its mode)
// and the process is neither exiting nor a forked child of one that used CUDA. A capture begins when those that are
// under way have returned. One exception: when a call of the program's own is out of memory during a capture, idle
// blocks go back (BlockSource::release_while_capturing).
struct Gate {
  std::atomic<int> captures{0};
  std::atomic<int> inside{0};
  mutable std::atomic<int> waiting{0};  // for it to empty: others stay out, else it might never be empty
  std::atomic<bool> closed{false};
  bool open() const { return captures.load() == 0 && waiting.load() == 0 && !closed.load(std::memory_order_relaxed); }
  // Not for ever: a call of our own may wait for work that waits for the thread that calls this.
  void wait_until_empty() const {
    waiting.fetch_add(1);
    for (int wait = 0; inside.load() && wait < kWaitsMax; ++wait) usleep(kWaitMicroseconds);
    waiting.fetch_sub(1);
  }

  static constexpr int kWaitsMax = 40'000;
  static constexpr unsigned kWaitMicroseconds = 50;
};

// Holds the gate open for calls of our own; false when it is shut.
class Through {
 public:
  explicit Through(Gate& gate) : gate_(gate) {
    gate_.inside.fetch_add(1);
    open_ = gate_.open();
  }
  ~Through() { gate_.inside.fetch_sub(1); }
  Through(const Through&) = delete;
  Through& operator=(const Through&) = delete;
  explicit operator bool() const { return open_; }

 private:
  Gate& gate_;
  bool open_;
};

}  // namespace cistern::cuda
