// A CUDA program with deliberate leaks in two functions, and clean work around them. It only uses the runtime's memory
// calls, so it runs on a GPU and on the simulated driver. Each allocation that is never freed stands on one line that
// ends in a comment "leak: NAME"; the check of the report looks these lines up.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr size_t kWeightBytes = 1 << 20;
constexpr size_t kStagingBytes = 256 << 10;
constexpr size_t kResultBytes = 100'000;

void require(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// Each layer's weights replace the last ones without freeing them.
[[gnu::noinline]] int load_weights() {
  const std::vector<char> bytes(kWeightBytes, 'w');
  int layers = 0;
  for (; layers < 3; ++layers) {
    void* weights = nullptr;
    require(cudaMalloc(&weights, kWeightBytes), "weights");  // leak: weights
    require(cudaMemcpy(weights, bytes.data(), kWeightBytes, cudaMemcpyHostToDevice), "write");
  }
  return layers;
}

// The result is copied through a pinned buffer; neither is freed.
[[gnu::noinline]] unsigned keep_result() {
  void *result = nullptr, *staging = nullptr;
  require(cudaMalloc(&result, kResultBytes), "result");         // leak: result
  require(cudaMallocHost(&staging, kStagingBytes), "staging");  // leak: staging
  require(cudaMemset(result, 7, kResultBytes), "fill");
  require(cudaMemcpy(staging, result, kResultBytes, cudaMemcpyDeviceToHost), "read");
  unsigned sum = 0;
  for (size_t i = 0; i < kResultBytes; ++i) sum += static_cast<unsigned char*>(staging)[i];
  return sum;
}

// Scratch buffers as many programs use them: allocated, used and freed in every step.
unsigned clean_steps(int steps) {
  unsigned sum = 0;
  for (int step = 0; step < steps; ++step) {
    const size_t bytes = 100'000 + 1000 * (step % 5);
    void* scratch = nullptr;
    std::vector<unsigned char> out(bytes);
    require(cudaMalloc(&scratch, bytes), "scratch");
    require(cudaMemset(scratch, step, bytes), "fill");
    require(cudaMemcpy(out.data(), scratch, bytes, cudaMemcpyDeviceToHost), "read");
    require(cudaFree(scratch), "free");
    sum += out[bytes - 1];
  }
  return sum;
}

}  // namespace

int main() {
  std::printf("clean steps %u\n", clean_steps(50));
  std::printf("layers %d\n", load_weights());
  std::printf("result %u\n", keep_result());
  return 0;
}
