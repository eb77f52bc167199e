// Stream-ordered memory: the default pool, a pool of the program's own, reuse, trim, attributes.
#include "../program.hpp"

constexpr size_t kBytes = 1 << 20;

static unsigned* ordered(cudaMemPool_t pool, cudaStream_t stream) {
  void* block = nullptr;
  NEED(pool ? cudaMallocFromPoolAsync(&block, kBytes, pool, stream) : cudaMallocAsync(&block, kBytes, stream));
  ++made.async;
  return static_cast<unsigned*>(block);
}

static void use(cudaMemPool_t pool, cudaStream_t stream) {
  unsigned *one = ordered(pool, stream), *two = ordered(pool, stream);
  fill(stream, one, kBytes, 1);
  fill(stream, two, kBytes, 2);
  NEED(cudaStreamSynchronize(stream));
  say("%s, %s", contents(one, kBytes).c_str(), contents(two, kBytes).c_str());
  SHOW(cudaFreeAsync(one, stream));
  unsigned* three = ordered(pool, stream);
  fill(stream, three, kBytes, 3);
  NEED(cudaStreamSynchronize(stream));
  say("%s, %s", contents(two, kBytes).c_str(), contents(three, kBytes).c_str());
  SHOW(cudaFree(two));
  SHOW(cudaFreeAsync(three, stream));
  NEED(cudaStreamSynchronize(stream));
}

int main() {
  cudaStream_t stream = new_stream();
  use(nullptr, stream);
  cudaMemPool_t pool = nullptr;
  NEED(cudaDeviceGetDefaultMemPool(&pool, 0));
  use(pool, stream);
  SHOW(cudaMemPoolTrimTo(pool, 0));
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 0;
  cudaMemPool_t own = nullptr;
  SHOW(cudaMemPoolCreate(&own, &properties));
  uint64_t threshold = 64 << 20;
  SHOW(cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &threshold));
  use(own, stream);
  uint64_t used = 1;
  SHOW(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &used));
  say("used %llu", static_cast<unsigned long long>(used));
  SHOW(cudaMemPoolTrimTo(own, 0));
  SHOW(cudaMemPoolDestroy(own));
  NEED(cudaStreamDestroy(stream));
  return finish();
}
