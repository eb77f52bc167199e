// library_rmm LIVE THREADS: library_pairs' device blocks from RMM's pool. Built by library.py, with RMM's headers and
// library as PyPI has them; the CUDA runtime is the substitute of the tests.
#include <cuda_runtime_api.h>

#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>

#include "pairs.h"

static rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>* pool;

static void use_device() { cudaSetDevice(0); }
static void* take(size_t bytes) { return pool->allocate(bytes << 10); }
static void give(void* block, size_t bytes) { pool->deallocate(block, bytes << 10); }

int main(int count, char** arguments) {
  if (count != 3) return 2;
  live_blocks = atoi(arguments[1]);
  thread_count = atoi(arguments[2]);
  enter_thread = use_device;
  use_device();
  rmm::mr::cuda_memory_resource device;
  // All that the load may have at once, so that it never grows.
  const size_t most = size_t{512} << 10;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> made(
      &device, (static_cast<size_t>(live_blocks * thread_count) + 1000) * most);
  pool = &made;
  const way rmm_pool = {"RMM pool_memory_resource", take, give};
  measure(&rmm_pool);
  return 0;
}
