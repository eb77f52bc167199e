// Copies: what every form of them has in common.
#pragma once
#include "tests/simcuda/driver/stream.hpp"

namespace simcuda {

// Whether the driver knows the memory as the host's but neither allocated nor registered it.
bool is_pageable(Locked&, uintptr_t address);
// [documented] A device pointer must be memory that the driver knows, the whole range of it.
bool is_device_range(Locked&, uintptr_t address, size_t bytes);

struct Shape {
  size_t row_bytes = 0;
  size_t rows = 1;
  size_t slices = 1;
};

// One side of a copy: where its first byte is, and how far rows and slices are apart.
struct Side {
  uintptr_t address = 0;
  size_t row_pitch = 0;
  size_t slice_pitch = 0;
  bool pageable = false;
  bool device = false;
};

void move_bytes(const Side& to, const Side& from, const Shape& shape);

enum class CopyCall { kSynchronous, kAsynchronous };

CUresult copy(Locked& lock, const StreamPointer& stream, const Side& to, const Side& from, const Shape& shape,
              CopyCall call);

}  // namespace simcuda
