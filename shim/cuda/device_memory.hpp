// Device memory as the pool gives and takes it: what the hooks of cuMemAlloc and cuMemFree call, and the C API. Records
// and lines about misuse name the driver's call either way.
#pragma once
#include "backends/cuda/block_source.hpp"

namespace cistern::cuda {

struct Context;

// As cuMemAlloc, in the current context: from the pool, unless there is a reason why not (hooks/allocate.cpp).
CUresult allocate_device(CUdeviceptr* pointer, std::size_t bytes);
// The same in this context, which is made current only for calls of the driver that need it.
CUresult allocate_device(Context& in, CUdeviceptr* pointer, std::size_t bytes);
// As cuMemFree (hooks/free.cpp).
CUresult free_device(CUdeviceptr pointer);
// The library's callers give memory back with these. A block of the pool (is_device_block) is freed in its own context,
// whichever is current; other memory as cuMemFree does it.
bool is_device_block(CUdeviceptr pointer);
CUresult free_device_now(CUdeviceptr pointer);
// Frees a block of the pool without waiting. The block is not reused before the work of its context has ended that was
// enqueued by then: on `stream`, and on all streams whose begin was seen. Other memory is freed as the driver frees it.
CUresult free_device_later(CUdeviceptr pointer, CUstream stream);
CUresult free_pinned_later(void* pointer, CUstream stream);

// As the others, in the order of a stream (hooks/stream_order.hpp). A request on a stream may get a block that went
// back on the same stream: its work comes behind that of the block before. `stream`: of the context, null being the
// default one. The per-thread one is known only while the context is current.
CUresult allocate_device_on(Context& in, CUstream stream, CUdeviceptr* pointer, std::size_t bytes);
CUresult free_device_on(CUstream stream, CUdeviceptr pointer);
// The block that begins there has work on this stream too: it goes back behind all work of its context. False: no
// block.
bool note_further_stream(CUdeviceptr pointer, CUstream stream);

// Makes `count` blocks more for the pool to keep, in the current context; no block of the program's is counted. A
// request that the pool does not serve is refused: kNotSupported.
CUresult reserve_device(std::size_t bytes, std::size_t count);
CUresult reserve_pinned(std::size_t bytes, unsigned flags, std::size_t count);

// --- Segments of the library's pools, and the blocks that it cuts out of them (shim/cuda/segments.hpp)
struct SegmentPlace {
  Context* context;
  std::uint32_t epoch;   // of the context
  std::uint64_t traits;  // as of blocks
};
// A whole allocation, which counts as retained.
struct WantedSegment {
  std::uint64_t bytes;
  bool makes_room;  // the pools give back for it
};
CUresult acquire_segment(const SegmentPlace& at, const WantedSegment& wanted, std::uintptr_t* first);
// Waits as the driver's free does. No block lives in it.
void release_segment(const SegmentPlace& at, std::uintptr_t first);

struct CutBytes {
  std::uintptr_t address;
  std::uint64_t bytes, requested;
  bool hit;  // no segment was made for it
};
CUresult begin_cut_block(const SegmentPlace& at, const CutBytes& cut);
// For whom a block in a segment is freed: this stream, in whose order it may be used again; or all, after a wait.
struct CutFree {
  bool on_stream;
  CUstream stream;
  std::uint64_t waiting_bytes;  // freed there before, and work may still use them
};
struct CutFreed {
  bool work_waits = false;      // work of its own context may still use it
  std::uint64_t order = 0;      // the stream's traits; 0: it has none
  bool is_retired = false;      // it must not be used again
  Vector<ClockPoint> others{};  // work of other contexts
};
CUresult end_cut_block(const SegmentPlace& at, std::uintptr_t address, const CutFree& as, CutFreed* freed);
// No memory could be had for a block: counted, and said where that helps.
void cut_block_failed(const SegmentPlace& at, std::uint64_t bytes);

struct DeviceUse {
  std::uint64_t live_bytes, cached_bytes;
};
DeviceUse use_of_device(int device);

}  // namespace cistern::cuda
