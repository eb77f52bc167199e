// Where buffers lie, and the streams and queues that work with them, the same for CUDA and OpenCL.
#ifndef CISTERN_PLACE_HPP
#define CISTERN_PLACE_HPP

#include <cistern/cistern.h>

#include <cstdint>

struct CUstream_st;

namespace cistern {

// A CUstream (cudaStream_t) or an in-order cl_command_queue. Not owned. None: calls wait until their work is done.
class stream {
 public:
  constexpr stream() noexcept = default;
  constexpr stream(decltype(nullptr)) noexcept {}
  stream(CUstream_st* of_cuda) noexcept : handle_(of_cuda) {}
  stream(_cl_command_queue* of_opencl) noexcept : handle_(of_opencl) {}
  void* get() const noexcept { return handle_; }

 private:
  void* handle_ = nullptr;
};

// The process's own pool of a kind, as cistern_pool_default. Null: there is no such kind.
inline cistern_pool* default_pool(cistern_kind kind) noexcept {
  cistern_pool* pool = nullptr;
  cistern_pool_default(kind, &pool);
  return pool;
}

// A kind of memory, and what has to be known to take some.
struct place {
  cistern_kind kind = CISTERN_HOST;
  int device = 0;                  // CUDA: an ordinal, in whose primary context it is; CISTERN_CURRENT
  _cl_context* context = nullptr;  // OpenCL
  stream queue = {};               // OpenCL: where no other is given
  std::uint64_t flags = 0;         // OpenCL, of clCreateBuffer
  cistern_pool* pool = nullptr;    // of that kind; null: the process's own
};

inline place on_host() noexcept { return {}; }
inline place on_device(int ordinal = 0) noexcept { return {CISTERN_DEVICE, ordinal}; }
inline place pinned(int ordinal = 0) noexcept { return {CISTERN_PINNED, ordinal}; }
inline place managed(int ordinal = 0) noexcept { return {CISTERN_MANAGED, ordinal}; }
inline place on_opencl(_cl_context* context, _cl_command_queue* queue, std::uint64_t flags = 0) noexcept {
  return {CISTERN_OPENCL, 0, context, queue, flags};
}
inline place in(cistern_pool* pool, place where) noexcept {
  where.pool = pool;
  return where;
}

}  // namespace cistern
#endif
