// The real driver functions that the CUDA backends call, which shim/cuda fills in, and the gate before calls of our
// own.
#pragma once
#include <unistd.h>

#include <atomic>

#include "backends/cuda/api.hpp"
#include "pool/base/foreign.hpp"

namespace cistern::cuda {

// A function that the driver lacks answers kNotFound.
struct Functions {
  Foreign<CUresult(CUdeviceptr*, std::size_t)> memory_allocate{};
  Foreign<CUresult(CUdeviceptr)> memory_free{};
  Foreign<CUresult(void**, std::size_t, unsigned)> host_allocate{};  // cuMemHostAlloc
  Foreign<CUresult(void**, std::size_t)> host_allocate_plain{};      // cuMemAllocHost
  Foreign<CUresult(void*)> host_free{};
  Foreign<CUresult(CUcontext*)> context_current{};
  Foreign<CUresult(CUcontext)> context_push{};
  Foreign<CUresult(CUcontext*)> context_pop{};
  Foreign<CUresult()> context_synchronize{};
  Foreign<CUresult(CUevent*, unsigned)> event_create{};
  Foreign<CUresult(CUevent, CUstream)> event_record{};
  Foreign<CUresult(CUevent)> event_query{};
  Foreign<CUresult(float*, CUevent, CUevent)> event_elapsed{};
  Foreign<CUresult(CUevent)> event_destroy{};
  Foreign<CUresult(CUstream)> stream_query{};
  Foreign<CUresult(CUstream, int*)> stream_is_capturing{};
  Foreign<CUresult(CUstream)> stream_synchronize{};
  Foreign<CUresult(CUdeviceptr, const void*, std::size_t, CUstream)> copy_to_device{};  // cuMemcpyHtoDAsync
  Foreign<CUresult(void*, CUdeviceptr, std::size_t, CUstream)> copy_to_host{};
  Foreign<CUresult(const CUDA_MEMCPY3D*, CUstream)> copy_shape{};  // cuMemcpy3DAsync
  Foreign<CUresult(void*, int, CUdeviceptr)> pointer_attribute{};
  Foreign<CUresult(CUdeviceptr*, std::size_t*, CUdeviceptr)> address_range{};
  Foreign<CUresult(int*, int, CUdevice)> device_attribute{};
  Foreign<CUresult(int*)> exchange_capture_mode{};
  // Physical memory and ranges of addresses, which are mapped to each other.
  Foreign<CUresult(std::size_t*, const CUmemAllocationProp*, int)> memory_granularity{};
  Foreign<CUresult(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long)> addresses_reserve{};
  Foreign<CUresult(CUdeviceptr, std::size_t)> addresses_free{};
  Foreign<CUresult(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*, unsigned long long)>
      memory_create{};
  Foreign<CUresult(CUmemGenericAllocationHandle)> memory_release{};
  Foreign<CUresult(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long)>
      memory_map{};
  Foreign<CUresult(CUdeviceptr, std::size_t)> memory_unmap{};
  Foreign<CUresult(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t)> memory_access{};
};

// This thread runs a function of the program's for a stream or a graph, in which no call of CUDA may be made.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local bool in_host_function = false;

// Calls of our own are made only while no stream captures (many calls would invalidate the capture, whatever its mode)
// and the process is neither exiting nor a forked child of one that used CUDA. A capture begins after those in flight
// have returned. There is one exception: if a call of the program's own is out of memory during a capture, blocks go
// back (BlockSource::release_while_capturing).
struct CallGate {
  std::atomic<int> captures{0};
  std::atomic<int> inside{0};
  mutable std::atomic<int> waiting{0};       // threads that wait until it is empty: others stay out meanwhile
  std::atomic<bool> closed{false};           // in such a child
  bool (*exiting)() = [] { return false; };  // set by shim/cuda
  bool open() const {
    return captures.load() == 0 && waiting.load() == 0 && !closed.load(std::memory_order_relaxed) &&
           !in_host_function && !exiting();
  }
  // It waits only for a time: a call of our own may wait for work that waits for the thread that calls this.
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
  explicit Through(CallGate& gate) : gate_(gate) {
    gate_.inside.fetch_add(1);
    open_ = gate_.open();
  }
  ~Through() { gate_.inside.fetch_sub(1); }
  Through(const Through&) = delete;
  Through& operator=(const Through&) = delete;
  explicit operator bool() const { return open_; }

 private:
  CallGate& gate_;
  bool open_;
};

}  // namespace cistern::cuda
