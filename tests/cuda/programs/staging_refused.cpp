// Copies that the driver refuses, and those whose other side is no memory of a device: they are done as a whole or not
// at all, in the answer and in the memory, and one that can be staged beside them.
// harness: stages=both
// harness: passes-on=shape,not-pageable
#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kWidth = 4096, kRows = 256, kBytes = kWidth * kRows;
constexpr unsigned char kOld = 7, kNew = 9;

static size_t count(const std::vector<unsigned char>& bytes, unsigned char value) {
  return static_cast<size_t>(std::count(bytes.begin(), bytes.end(), value));
}

static size_t changed_on_device(const unsigned char* block) {
  unsigned char* const pinned = pinned_block<unsigned char>(kBytes);
  NEED(cudaMemcpy(pinned, block, kBytes, cudaMemcpyDeviceToHost));
  const size_t changed = kBytes - static_cast<size_t>(std::count(pinned, pinned + kBytes, kOld));
  NEED(cudaFreeHost(pinned));
  return changed;
}

template <class Copy>
static void to_host(const char* what, Copy copy) {
  std::vector<unsigned char> target(2 * kBytes, 0);
  const cudaError_t code = copy(target.data());
  say("%s: %s, %zu bytes written", what, name_of(code), count(target, kOld));
  cudaGetLastError();
}

template <class Copy>
static void to_device(const char* what, const unsigned char* block, Copy copy) {
  const std::vector<unsigned char> source(2 * kBytes, kNew);
  const cudaError_t code = copy(source.data());
  say("%s: %s, %zu bytes changed", what, name_of(code), changed_on_device(block));
  cudaGetLastError();
}

static void rows_and_bytes() {
  auto* const block = device_block<unsigned char>(kBytes);
  NEED(cudaMemset(block, kOld, kBytes));
  const auto kToHost = cudaMemcpyDeviceToHost;
  to_host("all", [&](void* to) { return cudaMemcpy2D(to, kWidth, block, kWidth, kWidth, kRows, kToHost); });
  to_host("too many rows",
          [&](void* to) { return cudaMemcpy2D(to, kWidth, block, kWidth, kWidth, kRows + 64, kToHost); });
  to_host("a pitch too large",
          [&](void* to) { return cudaMemcpy2D(to, kWidth, block, kWidth + 64, kWidth, kRows, kToHost); });
  to_host("bytes past the end", [&](void* to) { return cudaMemcpy(to, block + 4096, kBytes, kToHost); });
  to_device("too many rows to it", block, [&](const void* from) {
    return cudaMemcpy2D(block, kWidth, from, kWidth, kWidth, kRows + 64, cudaMemcpyHostToDevice);
  });
  to_device("bytes past its end", block,
            [&](const void* from) { return cudaMemcpy(block + 4096, from, kBytes, cudaMemcpyHostToDevice); });
  to_device("all of it", block,
            [&](const void* from) { return cudaMemcpy(block, from, kBytes, cudaMemcpyHostToDevice); });
  NEED(cudaFree(block));
}

static void stream_ordered() {
  void* block = nullptr;
  NEED(cudaMallocAsync(&block, kBytes, nullptr));
  ++made.async;
  NEED(cudaMemset(block, kOld, kBytes));
  to_host("a block in stream order", [&](void* to) { return cudaMemcpy(to, block, kBytes, cudaMemcpyDeviceToHost); });
  to_host("past its end", [&](void* to) { return cudaMemcpy(to, block, 2 * kBytes, cudaMemcpyDeviceToHost); });
  to_host("by any kind", [&](void* to) { return cudaMemcpy(to, block, 2 * kBytes, cudaMemcpyDefault); });
  NEED(cudaFreeAsync(block, nullptr));
  NEED(cudaDeviceSynchronize());
}

static void arrays() {
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc bytes = cudaCreateChannelDesc(8, 0, 0, 0, cudaChannelFormatKindUnsigned);
  NEED(cudaMallocArray(&array, &bytes, kWidth, kRows));
  ++made.array;
  const std::vector<unsigned char> source(kBytes, kOld);
  NEED(cudaMemcpy2DToArray(array, 0, 0, source.data(), kWidth, kWidth, kRows, cudaMemcpyHostToDevice));
  to_host("rows past an array", [&](void* to) {
    return cudaMemcpy2DFromArray(to, kWidth, array, 0, 0, kWidth, kRows + 64, cudaMemcpyDeviceToHost);
  });
  to_host("an array", [&](void* to) {
    return cudaMemcpy2DFromArray(to, kWidth, array, 0, 0, kWidth, kRows, cudaMemcpyDeviceToHost);
  });
  NEED(cudaFreeArray(array));
}

// The name of the call says device, the memory is the host's.
static void named_otherwise() {
  unsigned char* const pinned = pinned_block<unsigned char>(kBytes);
  void* managed = nullptr;
  NEED(cudaMallocManaged(&managed, kBytes));
  ++made.managed;
  const std::vector<unsigned char> source(kBytes, kNew);
  SHOW(cudaMemcpy(pinned, source.data(), kBytes, cudaMemcpyHostToDevice));
  SHOW(cudaMemcpy(managed, source.data(), kBytes, cudaMemcpyHostToDevice));
  NEED(cudaDeviceSynchronize());
  say("they hold %d and %d", pinned[kBytes - 1], static_cast<unsigned char*>(managed)[kBytes - 1]);
  NEED(cudaFree(managed));
  NEED(cudaFreeHost(pinned));
}

int main() {
  rows_and_bytes();
  stream_ordered();
  arrays();
  named_otherwise();
  return finish();
}
