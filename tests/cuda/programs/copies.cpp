// Every form of copy, between pageable, pinned, managed and device memory: the right bytes arrive, and a source that
// is overwritten right after an asynchronous call from pageable memory does no harm.
// harness: per-thread
#include "../program.hpp"

constexpr size_t kWords = 25000, kBytes = kWords * 4;

static void one_dimension() {
  std::vector<unsigned> from(kWords, 1), to(kWords, 0);
  unsigned *device = device_block(kBytes), *other = device_block(kBytes);
  SHOW(cudaMemcpy(device, from.data(), kBytes, cudaMemcpyHostToDevice));
  SHOW(cudaMemcpy(other, device, kBytes, cudaMemcpyDeviceToDevice));
  SHOW(cudaMemcpy(to.data(), other, kBytes, cudaMemcpyDeviceToHost));
  say("%s", describe(to).c_str());
  SHOW(cudaMemcpy(to.data(), from.data(), kBytes, cudaMemcpyHostToHost));
  from.assign(kWords, 2);
  SHOW(cudaMemcpy(device, from.data(), kBytes, cudaMemcpyDefault));
  SHOW(cudaMemcpy(to.data(), device, kBytes, cudaMemcpyDefault));
  say("%s", describe(to).c_str());
  SHOW(cudaMemcpy(device, from.data(), 0, cudaMemcpyHostToDevice));
  SHOW(cudaMemset(device, 3, kBytes));
  say("%s", contents(device, kBytes).c_str());
  for (unsigned* one : {device, other}) NEED(cudaFree(one));
}

static void asynchronous() {
  cudaStream_t stream = new_stream();
  std::vector<unsigned> pageable(kWords, 4);
  unsigned *pinned = pinned_block(kBytes), *device = device_block(kBytes);
  keep_busy(stream, 3000);
  SHOW(cudaMemcpyAsync(device, pageable.data(), kBytes, cudaMemcpyHostToDevice, stream));
  pageable.assign(kWords, 5);
  SHOW(cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, stream));
  SHOW(cudaStreamSynchronize(stream));
  say("%s", describe({pinned, pinned + kWords}).c_str());
  SHOW(cudaMemsetAsync(device, 6, kBytes, stream));
  SHOW(cudaMemcpyAsync(pageable.data(), device, kBytes, cudaMemcpyDeviceToHost, stream));
  SHOW(cudaStreamSynchronize(stream));
  say("%s", describe(pageable).c_str());
  NEED(cudaFree(device));
  NEED(cudaFreeHost(pinned));
  NEED(cudaStreamDestroy(stream));
}

static void two_dimensions() {
  std::vector<unsigned> from(100 * 50, 7), to(100 * 50, 0);
  void* device = nullptr;
  size_t pitch = 0;
  NEED(cudaMallocPitch(&device, &pitch, 400, 50));
  ++made.device;
  SHOW(cudaMemcpy2D(device, pitch, from.data(), 400, 400, 50, cudaMemcpyHostToDevice));
  SHOW(cudaMemcpy2D(to.data(), 400, device, pitch, 400, 50, cudaMemcpyDeviceToHost));
  say("%s", describe(to).c_str());
  NEED(cudaFree(device));
}

static void managed() {
  void* block = nullptr;
  NEED(cudaMallocManaged(&block, kBytes, cudaMemAttachGlobal));
  ++made.managed;
  unsigned* words = static_cast<unsigned*>(block);
  fill(nullptr, words, kBytes, 8);
  NEED(cudaDeviceSynchronize());
  say("%s", describe({words, words + kWords}).c_str());
  std::vector<unsigned> to(kWords);
  SHOW(cudaMemcpy(to.data(), words, kBytes, cudaMemcpyDefault));
  say("%s", describe(to).c_str());
  NEED(cudaFree(block));
}

int main() {
  one_dimension();
  asynchronous();
  two_dimensions();
  managed();
  return finish();
}
