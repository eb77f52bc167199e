// A block is freed while work on it is pending, and blocks of its size are allocated and written at once: no late write
// arrives in them, and a late read still sees what it was to see. On every kind of stream, for device and pinned
// memory.
// harness: recycles=device
// harness: per-thread
// harness: nvcc
#include "../program.hpp"

constexpr size_t kBytes = 32768;
constexpr int kLate = 20000;

// A kernel that is late writes to a freed block.
static void late_write(const char* name, cudaStream_t stream, cudaStream_t other) {
  unsigned* block = device_block(kBytes);
  keep_busy(stream, kLate);
  fill(stream, block, kBytes, 1);
  NEED(cudaFree(block));
  unsigned* next[3];
  for (unsigned*& one : next) fill(other, one = device_block(kBytes), kBytes, 2);
  NEED(cudaDeviceSynchronize());
  for (unsigned* one : next) say("%s: late write: %s", name, contents(one, kBytes).c_str());
  for (unsigned* one : next) NEED(cudaFree(one));
}

// A kernel that is late reads a freed block.
static void late_read(const char* name, cudaStream_t stream, cudaStream_t other) {
  unsigned *block = device_block(kBytes), *witness = device_block(kBytes);
  fill(stream, block, kBytes, 3);
  keep_busy(stream, kLate);
  NEED(launch(stream, kBytes / 4, Copy{block, witness}));
  NEED(cudaFree(block));
  unsigned* next[3];
  for (unsigned*& one : next) fill(other, one = device_block(kBytes), kBytes, 4);
  NEED(cudaDeviceSynchronize());
  say("%s: late read: %s", name, contents(witness, kBytes).c_str());
  for (unsigned* one : next) NEED(cudaFree(one));
  NEED(cudaFree(witness));
}

// Work in two streams of which the first to be used finishes last.
static void two_streams(const char* name, cudaStream_t stream, cudaStream_t other) {
  unsigned *block = device_block(kBytes), *first = device_block(kBytes), *second = device_block(kBytes);
  fill(stream, block, kBytes, 5);
  NEED(cudaStreamSynchronize(stream));
  keep_busy(stream, 2 * kLate);
  NEED(launch(stream, kBytes / 4, Copy{block, first}));
  keep_busy(other, kLate);
  NEED(launch(other, kBytes / 4, Copy{block, second}));
  NEED(cudaFree(block));
  unsigned* next = device_block(kBytes);
  fill(other, next, kBytes, 6);
  NEED(cudaDeviceSynchronize());
  say("%s: two streams: %s, %s", name, contents(first, kBytes).c_str(), contents(second, kBytes).c_str());
  for (unsigned* one : {next, first, second}) NEED(cudaFree(one));
}

// Pinned memory is the source of a late copy, then the target of one.
static void late_copies(const char* name, cudaStream_t stream) {
  unsigned *source = pinned_block(kBytes), *block = device_block(kBytes);
  for (size_t i = 0; i < kBytes / 4; ++i) source[i] = 7;
  keep_busy(stream, kLate);
  NEED(cudaMemcpyAsync(block, source, kBytes, cudaMemcpyHostToDevice, stream));
  NEED(cudaFreeHost(source));
  unsigned* next = pinned_block(kBytes);
  for (size_t i = 0; i < kBytes / 4; ++i) next[i] = 8;
  NEED(cudaDeviceSynchronize());
  say("%s: late copy from pinned: %s", name, contents(block, kBytes).c_str());
  keep_busy(stream, kLate);
  NEED(cudaMemcpyAsync(next, block, kBytes, cudaMemcpyDeviceToHost, stream));
  NEED(cudaFreeHost(next));
  unsigned* last = pinned_block(kBytes);
  for (size_t i = 0; i < kBytes / 4; ++i) last[i] = 9;
  NEED(cudaDeviceSynchronize());
  say("%s: late copy to pinned: %s", name, describe({last, last + kBytes / 4}).c_str());
  NEED(cudaFreeHost(last));
  NEED(cudaFree(block));
}

int main() {
  cudaStream_t blocking = new_stream(cudaStreamDefault), free_running = new_stream(), other = new_stream();
  struct {
    const char* name;
    cudaStream_t stream;
  } streams[] = {{"default", nullptr},
                 {"legacy", cudaStreamLegacy},
                 {"per-thread", cudaStreamPerThread},
                 {"blocking", blocking},
                 {"non-blocking", free_running}};
  for (const auto& one : streams) {
    late_write(one.name, one.stream, other);
    late_read(one.name, one.stream, other);
    two_streams(one.name, one.stream, other);
    late_copies(one.name, one.stream);
  }
  for (cudaStream_t stream : {blocking, free_running, other}) NEED(cudaStreamDestroy(stream));
  return finish();
}
