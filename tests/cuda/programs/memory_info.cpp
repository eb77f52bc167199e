// cudaMemGetInfo sees what is allocated and what is free, to the byte that the driver counts: memory that is kept for
// reuse counts as free. Memory of ranges counts by the pieces in which a block lies.
// harness: simulator-only
#include <algorithm>

#include "../program.hpp"

static size_t free_now() {
  size_t available = 0, total = 0;
  NEED(cudaMemGetInfo(&available, &total));
  return available;
}

// `bytes` are in use, in so many blocks. A block has a part of a piece at each of its ends.
static void say_less(const char* what, size_t less, size_t bytes, int blocks, size_t total) {
  constexpr size_t kUnit = 2 << 20;
  const size_t piece = std::max(kUnit, total / 1024);
  const bool fits = less % kUnit == 0 && less >= bytes && less - bytes <= 2 * piece * static_cast<size_t>(blocks);
  say("%s: %zu less", what, in_ranges() && fits ? bytes : less);
}

int main() {
  SHOW(cudaFree(nullptr));
  size_t available = 0, total = 0;
  SHOW(cudaMemGetInfo(&available, &total));
  say("total %zu", total);
  SHOW(cudaMemGetInfo(nullptr, nullptr));
  forget_error();
  SHOW(cudaMemGetInfo(&available, nullptr));
  forget_error();
  SHOW(cudaMemGetInfo(nullptr, &total));
  forget_error();
  const size_t before = free_now();
  for (int round = 0; round < 2; ++round) {
    void* blocks[6];
    size_t sizes[6] = {1, 512, 100000, 1 << 20, 10000000, 77777777}, used = 0;
    const auto as_driver_counts = [&](int i) { return (sizes[i] + 511) / 512 * 512; };
    for (int i = 0; i < 6; ++i) {
      blocks[i] = device_block(sizes[i]);
      used += as_driver_counts(i);
      say_less(("with " + std::to_string(sizes[i]) + " bytes more").c_str(), before - free_now(), used, i + 1, total);
    }
    for (int i = 0; i < 6; ++i) {
      NEED(cudaFree(blocks[i]));
      used -= as_driver_counts(i);
      say_less("after free", before - free_now(), used, 5 - i, total);
    }
  }
  void* pinned = pinned_block(1 << 20);
  say("pinned memory takes %zu", before - free_now());
  NEED(cudaFreeHost(pinned));
  return finish();
}
