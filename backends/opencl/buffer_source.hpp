// OpenCL buffers as a source: a chunk is a whole cl_mem, of exactly the requested size and flags.
// Its fence is the last use on every queue that used it.
//
// Room: chunks of OpenCL memory, and what is known of a queue's work.
// May include: pool/base, pool, pool/staging.
#pragma once
#include <memory>

#include "backends/opencl/queue_clock.hpp"

namespace cistern::opencl {

struct Use {
  std::shared_ptr<QueueClock> clock;
  std::uint64_t number;  // the last command of that queue that used the buffer
};

class BufferSource {
 public:
  struct Request {
    cl_context context;
    cl_bitfield flags;
    std::size_t bytes;
  };
  using Chunk = cl_mem;
  using Error = cl_int;
  using Fence = Vector<Use>;

  constexpr BufferSource(const Functions& real, DriverCalls& calls) : real_(real), calls_(calls) {}

  Acquired<cl_mem, cl_int> acquire(const Request& request) {
    cl_int error = kSuccess;
    cl_mem buffer = real_.create_buffer(request.context, request.flags, request.bytes, nullptr, &error);
    if (buffer) calls_.allocs.fetch_add(1, std::memory_order_relaxed);
    return {buffer, error, buffer != nullptr};
  }

  void release(cl_mem buffer) {
    calls_.frees.fetch_add(1, std::memory_order_relaxed);
    real_.release_memory(buffer);
  }

  // Yes: every command that used the buffer has ended, and the driver itself holds no reference any more.
  Settled settled(cl_mem buffer, Fence& uses) {
    for (Use& use : uses)
      if (Settled answer = use.clock->settled(use.number); answer != Settled::yes) return answer;
    return reference_count(buffer) == 1 ? Settled::yes : Settled::no;
  }

  static bool out_of_memory(cl_int error) {
    return error == kMemObjectAllocationFailure || error == kOutOfResources || error == kOutOfHostMemory;
  }

  // The count of any memory object; 0: the driver does not say.
  cl_uint reference_count(cl_mem memory) { return info<cl_uint>(memory, kMemReferenceCount); }
  // The caller counts the query.
  cl_uint uncounted_reference_count(cl_mem memory) { return ask<cl_uint>(memory, kMemReferenceCount); }
  cl_uint map_count(cl_mem memory) { return info<cl_uint>(memory, kMemMapCount); }
  std::size_t bytes(cl_mem memory) { return info<std::size_t>(memory, kMemSize); }

 private:
  template <class Value>
  Value info(cl_mem memory, cl_uint name) {
    calls_.queries.fetch_add(1, std::memory_order_relaxed);
    return ask<Value>(memory, name);
  }
  template <class Value>
  Value ask(cl_mem memory, cl_uint name) {
    Value value = 0;
    return real_.memory_info(memory, name, sizeof value, &value, nullptr) == kSuccess ? value : 0;
  }

  const Functions& real_;
  DriverCalls& calls_;
};
static_assert(Source<BufferSource>);

}  // namespace cistern::opencl
