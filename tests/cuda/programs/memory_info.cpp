// cudaMemGetInfo sees what is allocated and what is free, to the byte that the driver counts: memory that is kept for
// reuse counts as free.
// harness: simulator-only
// harness: without-ranges=pieces
#include "../program.hpp"

static size_t free_now() {
  size_t available = 0, total = 0;
  NEED(cudaMemGetInfo(&available, &total));
  return available;
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
    size_t sizes[6] = {1, 512, 100000, 1 << 20, 10000000, 77777777};
    for (int i = 0; i < 6; ++i) {
      blocks[i] = device_block(sizes[i]);
      say("with %zu bytes more: %zu less", sizes[i], before - free_now());
    }
    for (int i = 0; i < 6; ++i) {
      NEED(cudaFree(blocks[i]));
      say("after free: %zu less", before - free_now());
    }
  }
  void* pinned = pinned_block(1 << 20);
  say("pinned memory takes %zu", before - free_now());
  NEED(cudaFreeHost(pinned));
  return finish();
}
