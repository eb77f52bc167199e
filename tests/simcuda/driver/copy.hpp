// Copies: what every form of them has in common.
#pragma once
#include "tests/simcuda/driver/stream.hpp"

namespace simcuda {

// [documented] A device pointer must be memory that the driver knows, the whole range of it.
bool is_device_range(Locked&, uintptr_t address, size_t bytes);

struct Shape {
  size_t row_bytes = 0;
  size_t rows = 1;
  size_t slices = 1;

  size_t bytes() const { return row_bytes * rows * slices; }
};

// One side of a copy: where its first byte is, and how far rows and slices are apart.
struct Side {
  uintptr_t address = 0;
  size_t row_pitch = 0;
  size_t slice_pitch = 0;
  bool pageable = false;
  bool pinned = false;  // or registered
  Device* device = nullptr;
  int accessed_by = Touched::kDeviceOfCommand;
};

// Fills in what memory the side's first byte is in.
void describe_memory(Locked&, Side& side);

struct ShapedCopy {
  Side to, from;
  Shape shape;
};

// The whole copy with the time that it takes, for a stream's worker or a graph.
Task copy_task(Locked&, const ShapedCopy& what);

enum class CopyCall {
  kSynchronous,
  kAsynchronous,
  kInStreamOrder,  // asynchronous, and pageable memory too is touched after the call
};

CUresult copy(Locked& lock, const StreamPointer& stream, const ShapedCopy& what, CopyCall call);

}  // namespace simcuda
