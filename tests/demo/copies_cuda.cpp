// A CUDA program that copies from and to plain memory, as most do: batches to the device, results back. What it says is
// of its data only; scripts/demo takes its time, plain and under Cistern.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t kWords = size_t{4} << 20;  // 16 MiB
constexpr int kBatches = 60;

void require(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

std::uint64_t sum_of_some(const std::vector<unsigned>& words) {
  std::uint64_t sum = 0;
  for (size_t i = 0; i < words.size(); i += 997) sum = sum * 31 + words[i];
  return sum;
}

}  // namespace

int main() {
  std::vector<unsigned> batch(kWords), result(kWords);
  for (size_t i = 0; i < kWords; ++i) batch[i] = static_cast<unsigned>(i * 2654435761u);
  std::uint64_t sum = 0;
  for (int i = 0; i < kBatches; ++i) {
    void* device = nullptr;
    require(cudaMalloc(&device, kWords * 4), "cudaMalloc");
    batch[static_cast<size_t>(i) * 997] = static_cast<unsigned>(i);
    require(cudaMemcpy(device, batch.data(), kWords * 4, cudaMemcpyHostToDevice), "a batch");
    require(cudaMemcpy(result.data(), device, kWords * 4, cudaMemcpyDeviceToHost), "a result");
    sum += sum_of_some(result);
    require(cudaFree(device), "cudaFree");
  }
  std::printf("%d batches of %zu MiB there and back: %016llx\n", kBatches, kWords * 4 >> 20,
              static_cast<unsigned long long>(sum));
}
