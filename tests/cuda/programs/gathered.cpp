// Small copies from pageable memory, in every order with other calls: what the program sees of them is what it sees
// without Cistern, however they are sent.
// harness: dropped=device:1
#include <thread>

#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kSlice = 3072, kSlices = 2000;

static void copy_of_slice(unsigned char* block, const std::vector<unsigned char>& from, size_t slice,
                          cudaStream_t stream) {
  NEED(cudaMemcpyAsync(block + slice * kSlice, from.data() + slice * kSlice, kSlice, cudaMemcpyHostToDevice, stream));
}

static bool holds(const void* block, const std::vector<unsigned char>& expected, cudaStream_t stream) {
  std::vector<unsigned char> back(expected.size());
  NEED(cudaMemcpyAsync(back.data(), block, back.size(), cudaMemcpyDeviceToHost, stream));
  NEED(cudaStreamSynchronize(stream));
  return back == expected;
}

// Neighbours, each from memory that is then overwritten.
static void neighbours(unsigned char* block, cudaStream_t stream) {
  const std::vector<unsigned char> whole = pattern(kSlice * kSlices, 1);
  std::vector<unsigned char> slice(kSlice);
  for (size_t i = 0; i < kSlices; ++i) {
    memcpy(slice.data(), whole.data() + i * kSlice, kSlice);
    NEED(cudaMemcpyAsync(block + i * kSlice, slice.data(), kSlice, cudaMemcpyHostToDevice, stream));
    memset(slice.data(), 0x55, kSlice);
  }
  say("neighbours arrive: %s", yes_no(holds(block, whole, stream)));
}

static void same_place(unsigned char* block, cudaStream_t stream) {
  for (unsigned round = 0; round < 100; ++round)
    NEED(cudaMemcpyAsync(block, pattern(kSlice, round).data(), kSlice, cudaMemcpyHostToDevice, stream));
  say("the last copy wins: %s", yes_no(holds(block, pattern(kSlice, 99), stream)));
  std::vector<unsigned char> expected = pattern(2 * kSlice, 3);
  NEED(cudaMemcpyAsync(block, expected.data(), 2 * kSlice, cudaMemcpyHostToDevice, stream));
  NEED(cudaMemsetAsync(block, 7, kSlice, stream));
  NEED(cudaMemcpyAsync(block, expected.data(), 100, cudaMemcpyHostToDevice, stream));
  memset(expected.data() + 100, 7, kSlice - 100);
  say("a memset in between keeps its place: %s", yes_no(holds(block, expected, stream)));
}

// Another stream waits for an event behind the copies, and reads what they wrote.
static void two_streams(unsigned char* block, unsigned char* other, cudaStream_t stream) {
  cudaStream_t second = new_stream();
  cudaEvent_t event = nullptr;
  NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const std::vector<unsigned char> whole = pattern(kSlice * 50, 11);
  for (size_t i = 0; i < 50; ++i) copy_of_slice(block, whole, i, stream);
  NEED(cudaEventRecord(event, stream));
  NEED(cudaStreamWaitEvent(second, event, 0));
  NEED(cudaMemcpyAsync(other, block, whole.size(), cudaMemcpyDeviceToDevice, second));
  say("another stream sees them behind an event: %s", yes_no(holds(other, whole, second)));
  const std::vector<unsigned char> one = pattern(kSlice * 50, 12), two = pattern(kSlice * 50, 13);
  for (size_t i = 0; i < 50; ++i) {
    copy_of_slice(block, one, i, stream);
    copy_of_slice(other, two, i, second);
  }
  say("two streams in turn: %s %s", yes_no(holds(other, two, second)), yes_no(holds(block, one, stream)));
  for (size_t i = 0; i < 50; ++i) copy_of_slice(other, one, i, second);
  NEED(cudaStreamDestroy(second));
  NEED(cudaDeviceSynchronize());
  say("the stream is destroyed behind its copies: %s", yes_no(holds(other, one, stream)));
  NEED(cudaEventDestroy(event));
}

static void two_threads(unsigned char* block, unsigned char* other, cudaStream_t stream) {
  std::vector<unsigned char> whole = pattern(kSlice * 200, 21), back(whole.size());
  std::thread copies([&] {
    for (size_t i = 0; i < 200; ++i) copy_of_slice(block, whole, i, stream);
  });
  copies.join();
  NEED(cudaMemcpyAsync(other, block, whole.size(), cudaMemcpyDeviceToDevice, stream));
  say("copies of a thread that has ended: %s", yes_no(holds(other, whole, stream)));
  std::atomic<int> wrong{0};
  const auto work = [&](unsigned char* at, unsigned number) {
    cudaStream_t own = new_stream();
    for (unsigned round = 0; round < 50; ++round) {
      const std::vector<unsigned char> mine = pattern(kSlice * 20, number * 1000 + round);
      for (size_t i = 0; i < 20; ++i) copy_of_slice(at, mine, i, own);
      wrong += !holds(at, mine, own);
    }
    NEED(cudaStreamDestroy(own));
  };
  std::thread first(work, block, 1), second(work, other, 2);
  first.join();
  second.join();
  say("two threads at once: %d wrong", wrong.load());
}

static void captures(unsigned char* block, cudaStream_t stream) {
  const std::vector<unsigned char> before = pattern(kSlice, 31);
  copy_of_slice(block, before, 0, stream);
  NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  NEED(cudaMemsetAsync(block + kSlice, 9, kSlice, stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t run = nullptr;
  NEED(cudaStreamEndCapture(stream, &graph));
  NEED(cudaGraphInstantiate(&run, graph, 0));
  copy_of_slice(block, pattern(2 * kSlice, 32), 1, stream);
  NEED(cudaGraphLaunch(run, stream));
  std::vector<unsigned char> expected = before;
  expected.resize(2 * kSlice, 9);
  say("before a capture, and before its graph: %s", yes_no(holds(block, expected, stream)));
  NEED(cudaGraphExecDestroy(run));
  NEED(cudaGraphDestroy(graph));
}

// The driver still refuses what it refuses without Cistern.
static void refused(unsigned char* block, cudaStream_t stream) {
  std::vector<unsigned char> bytes(kSlice);
  unsigned char* gone = device_block<unsigned char>(kSlice * 4);
  NEED(cudaMemcpyAsync(gone, bytes.data(), kSlice, cudaMemcpyHostToDevice, stream));
  NEED(cudaFree(gone));
  copy_of_slice(block, pattern(kSlice, 41), 0, stream);
  SHOW(cudaMemcpyAsync(gone, bytes.data(), kSlice, cudaMemcpyHostToDevice, stream));
  forget_error();
  say("the copy before it arrives: %s", yes_no(holds(block, pattern(kSlice, 41), stream)));
}

// Any commands, with a model of what the block holds.
static void at_random(unsigned char* block, cudaStream_t stream) {
  constexpr size_t kBytes = kSlice * 64;
  std::vector<unsigned char> model(kBytes, 0), from;
  NEED(cudaMemset(block, 0, kBytes));
  NEED(cudaDeviceSynchronize());
  unsigned state = 12345;
  const auto next = [&](size_t limit) { return (state = state * 1664525u + 1013904223u) / 65536u % limit; };
  int wrong = 0;
  size_t at = 0;
  for (unsigned i = 0; i < 20000; ++i) {
    const size_t bytes = 1 + next(kSlice);
    if (next(3) || at + bytes > kBytes) at = next(kBytes - bytes);
    const unsigned what = static_cast<unsigned>(next(40));
    if (what == 0) {
      const int value = static_cast<int>(next(256));
      NEED(cudaMemsetAsync(block + at, value, bytes, stream));
      memset(model.data() + at, value, bytes);
    } else if (what == 1) {
      std::vector<unsigned char> back(bytes);
      NEED(cudaMemcpyAsync(back.data(), block + at, bytes, cudaMemcpyDeviceToHost, stream));
      NEED(cudaStreamSynchronize(stream));
      wrong += memcmp(back.data(), model.data() + at, bytes) != 0;
    } else {
      from = pattern(bytes, i);
      NEED(cudaMemcpyAsync(block + at, from.data(), bytes, cudaMemcpyHostToDevice, stream));
      memcpy(model.data() + at, from.data(), bytes);
      memset(from.data(), 0xAA, bytes);
      at += bytes;
    }
  }
  say("20,000 commands at random: %d reads wrong, all right at the end: %s", wrong,
      yes_no(holds(block, model, stream)));
}

static void synchronous(unsigned char* block) {
  const std::vector<unsigned char> whole = pattern(kSlice * 100, 51);
  for (size_t i = 0; i < 100; ++i)
    NEED(cudaMemcpy(block + i * kSlice, whole.data() + i * kSlice, kSlice, cudaMemcpyHostToDevice));
  std::vector<unsigned char> back(whole.size());
  NEED(cudaMemcpy(back.data(), block, back.size(), cudaMemcpyDeviceToHost));
  say("copies that wait arrive: %s", yes_no(back == whole));
}

int main() {
  cudaStream_t stream = new_stream();
  auto* block = device_block<unsigned char>(kSlice * kSlices);
  auto* other = device_block<unsigned char>(kSlice * kSlices);
  neighbours(block, stream);
  same_place(block, stream);
  two_streams(block, other, stream);
  two_threads(block, other, stream);
  captures(block, stream);
  refused(block, stream);
  at_random(block, stream);
  synchronous(block);
  NEED(cudaFree(other));
  for (size_t i = 0; i < 10; ++i) copy_of_slice(block, pattern(kSlice * 10, 61), i, stream);
  NEED(cudaFree(block));
  copy_of_slice(block = device_block<unsigned char>(kSlice * 10), pattern(kSlice * 10, 62), 3, stream);
  NEED(cudaDeviceReset());
  return finish();
}
