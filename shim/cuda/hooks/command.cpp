// Launches, synchronisations and copies: passed on. An error that breaks the context is noted, and of copies between
// host and device their bytes, direction, kind of host memory and call site.
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/state.hpp"

namespace cistern::cuda {
namespace {

CUresult observe(CUresult answer) {
  if (is_sticky(answer)) [[unlikely]]
    return note(state(), answer);
  return answer;
}

enum class Blocking { no, yes };
enum class Place { device, pinned, pageable, unknown };

// Where an address lies: our own tables know most; else the driver does, and what it does not know is pageable.
Place place_of(CudaState& s, std::uintptr_t address) {
  if (const auto range = s.blocks.ranges.find(address))
    return range->value.kind == RangeKind::device ? Place::device : Place::pinned;
  int type = 0;
  counters(s, Family::device).driver_queries.fetch_add(1, std::memory_order_relaxed);
  if (driver().cuPointerGetAttribute(&type, kPointerMemoryType, address) != kSuccess) return Place::pageable;
  return type == kMemoryHost ? Place::pinned : Place::device;
}

bool pageable(CudaState& s, const void* host) {
  const auto range = s.blocks.ranges.find(reinterpret_cast<std::uintptr_t>(host));
  return !range;
}

// One call that copies, from before it is made.
class Copying {
 public:
  explicit Copying(const char* api) : api_(api), begin_ns_(nanoseconds_since_start()) {}

  void to_device(const void* source, std::uint64_t bytes, Blocking blocking) {
    add(Direction::host_to_device, pageable(s_, source), bytes, blocking);
  }
  void to_host(const void* target, std::uint64_t bytes, Blocking blocking) {
    add(Direction::device_to_host, pageable(s_, target), bytes, blocking);
  }
  void either(CUdeviceptr target, CUdeviceptr source, std::uint64_t bytes, Blocking blocking) {
    const Place to = place_of(s_, target), from = place_of(s_, source);
    const bool any_pageable = to == Place::pageable || from == Place::pageable;
    const bool to_device = to == Place::device, from_device = from == Place::device;
    if (to_device && from_device) return between_devices(bytes, blocking);
    const Direction direction = to_device     ? Direction::host_to_device
                                : from_device ? Direction::device_to_host
                                              : Direction::host_to_host;
    add(direction, any_pageable, bytes, blocking);
  }
  void between_devices(std::uint64_t bytes, Blocking blocking) {
    across_contexts();
    add(Direction::device_to_device, false, bytes, blocking);
  }
  void across_contexts() {
    if (s_.contexts_alive.load(std::memory_order_relaxed) > 1) s_.shared_between_contexts.store(true);
  }
  void described_2d(const CUDA_MEMCPY2D* copy, Blocking blocking) {
    described(copy->target, copy->source, copy->width_bytes * copy->height, blocking);
  }
  void described_3d(const CUDA_MEMCPY3D* copy, Blocking blocking) {
    described(copy->target, copy->source, copy->width_bytes * copy->height * copy->depth, blocking);
  }
  void batch(const CUdeviceptr* targets, const CUdeviceptr* sources, const std::size_t* sizes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) either(targets[i], sources[i], sizes[i], Blocking::no);
  }
  // Extents are in elements, whose size only the arrays know: bytes are counted between pointers.
  void batch_3d(const CUDA_MEMCPY3D_BATCH_OP* copies, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const CUDA_MEMCPY3D_BATCH_OP& copy = copies[i];
      if (copy.source.type == kOperandPointer && copy.target.type == kOperandPointer)
        either(copy.target.pointer.address, copy.source.pointer.address, copy.width * copy.height * copy.depth,
               Blocking::no);
    }
  }

 private:
  template <class Side>
  Place place_of_side(const Side& side) {
    switch (side.memory_type) {
      case kMemoryHost:
        return pageable(s_, side.host) ? Place::pageable : Place::pinned;
      case kMemoryUnified:
        return place_of(s_, side.device);
      default:
        return Place::device;
    }
  }
  template <class Side>
  void described(const Side& target, const Side& source, std::uint64_t bytes, Blocking blocking) {
    const Place to = place_of_side(target), from = place_of_side(source);
    const bool to_device = to == Place::device, from_device = from == Place::device;
    const Direction direction = to_device ? (from_device ? Direction::device_to_device : Direction::host_to_device)
                                          : (from_device ? Direction::device_to_host : Direction::host_to_host);
    add(direction, to == Place::pageable || from == Place::pageable, bytes, blocking);
  }
  void add(Direction direction, bool any_pageable, std::uint64_t bytes, Blocking blocking) {
    const char* api = api_name(api_);
    const bool waited = blocking == Blocking::yes;
    s_.transfers.add({direction, any_pageable, !waited, capture(s_, api), api}, bytes,
                     waited ? nanoseconds_since_start() - begin_ns_ : 0);
  }

  CudaState& s_ = state();
  const char* api_;
  std::uint64_t begin_ns_;
};

}  // namespace

namespace hook {

#define CUDA_OBSERVE(base, version, stream, name, parameters, arguments) \
  CUresult name parameters { return observe(driver().name arguments); }
#define CUDA_COPY(base, version, stream, name, parameters, arguments, copied) \
  CUresult name parameters {                                                  \
    Copying copying(#name);                                                   \
    const CUresult answer = driver().name arguments;                          \
    if (answer != kSuccess) return observe(answer);                           \
    copying.copied;                                                           \
    return answer;                                                            \
  }
#include "shim/symbols/cuda.def"

}  // namespace hook
}  // namespace cistern::cuda
