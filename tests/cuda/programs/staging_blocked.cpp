// A stream waits for a flag that only the thread that copies sets, after its copies: an asynchronous copy from pageable
// memory never waits for what is before it on its stream. Meanwhile copies on other streams come and go, and one of
// those streams may set the flag. Afterwards there are chunks again.
// harness: stages=both
// harness: passes-on=no-chunk
#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kBytes = size_t{2} << 20;
constexpr int kCopies = 100;

struct WaitForFlag {
  static constexpr const char* kName = "wait_for_flag";
  volatile unsigned* flag;
  ON_BOTH void operator()(size_t) const {
    while (*flag == 0) {
#ifndef __CUDA_ARCH__
      usleep(50);
#endif
    }
  }
};

static int count_right(const std::vector<unsigned*>& blocks, unsigned* pinned) {
  int right = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    NEED(cudaMemcpy(pinned, blocks[i], kBytes, cudaMemcpyDeviceToHost));
    right += has_pattern(pinned, kBytes, static_cast<unsigned>(i));
  }
  return right;
}

// Copies on another stream, and the default one, while all is held up on the first.
static void pass_by(cudaStream_t other, unsigned* block) {
  std::vector<unsigned char> there = pattern(4 * kBytes, 500), back(4 * kBytes);
  SHOW(cudaMemcpyAsync(block, there.data(), there.size(), cudaMemcpyHostToDevice, other));
  SHOW(cudaMemcpyAsync(back.data(), block, back.size(), cudaMemcpyDeviceToHost, other));
  say("on another stream: right: %s", yes_no(has_pattern(back.data(), back.size(), 500)));
  write_pattern(there.data(), there.size(), 501);
  SHOW(cudaMemcpy(block, there.data(), there.size(), cudaMemcpyHostToDevice));
  SHOW(cudaMemcpy(back.data(), block, back.size(), cudaMemcpyDeviceToHost));
  say("on the default one: right: %s", yes_no(has_pattern(back.data(), back.size(), 501)));
}

static void blocked(const char* name, bool by_another_stream) {
  cudaStream_t stream = new_stream(), other = new_stream();
  unsigned *flag = pinned_block(4096), *pinned = pinned_block(kBytes), *large = device_block(4 * kBytes);
  *flag = 0;
  std::vector<unsigned*> blocks;
  for (int i = 0; i < kCopies; ++i) blocks.push_back(device_block(kBytes));
  NEED(launch(stream, 1, WaitForFlag{flag}));
  std::vector<unsigned char> source(kBytes);
  for (int i = 0; i < kCopies; ++i) {
    write_pattern(source.data(), kBytes, static_cast<unsigned>(i));
    NEED(cudaMemcpyAsync(blocks[i], source.data(), kBytes, cudaMemcpyHostToDevice, stream));
    memset(source.data(), 0x55, kBytes);
  }
  say("%s: still waiting: %s", name, yes_no(cudaStreamQuery(stream) == cudaErrorNotReady));
  forget_error();
  pass_by(other, large);
  if (by_another_stream)
    NEED(launch(other, 1, Fill{flag, 1}));
  else
    __atomic_store_n(flag, 1u, __ATOMIC_SEQ_CST);
  NEED(cudaStreamSynchronize(stream));
  say("%s: %d of %d arrived", name, count_right(blocks, pinned), kCopies);
  std::vector<unsigned char> last(kBytes);
  NEED(cudaMemcpy(last.data(), blocks.back(), kBytes, cudaMemcpyDeviceToHost));
  say("%s: and to pageable memory: right: %s", name, yes_no(has_pattern(last.data(), kBytes, kCopies - 1)));
  blocks.push_back(large);
  for (unsigned* block : blocks) NEED(cudaFree(block));
  for (unsigned* block : {flag, pinned}) NEED(cudaFreeHost(block));
  for (cudaStream_t one : {stream, other}) NEED(cudaStreamDestroy(one));
}

int main() {
  alarm(100);
  NEED(cudaFree(nullptr));
  blocked("by the host", false);
  blocked("by another stream", true);
  return finish();
}
