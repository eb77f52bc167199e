// A program of phases, each with buffers of another size, all released in between: it needs little more memory than its
// largest phase, whatever is kept of the others.
// harness: recycles
#include <sys/resource.h>

#include "observe.hpp"

static size_t most_resident_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) >> 10;
}

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kPhases = 8, kBuffers = 8;
constexpr size_t bytes_of(int phase) { return (12 + 2 * static_cast<size_t>(phase)) * kMiB; }

static void fill(const Setup& cl, cl_mem buffer, size_t bytes) {
  const cl_uint value = 1;
  need(clEnqueueFillBuffer(cl.queue, buffer, &value, sizeof value, 0, bytes, 0, nullptr, nullptr), "fill");
}

int main() {
  Setup cl;
  cl_mem first = cl.buffer(kMiB);
  fill(cl, first, kMiB);
  need(clFinish(cl.queue), "clFinish");
  clReleaseMemObject(first);
  const size_t before = most_resident_mib();
  for (int phase = 0; phase < kPhases; ++phase) {
    cl_mem buffers[kBuffers];
    for (cl_mem& buffer : buffers) {
      buffer = cl.buffer(bytes_of(phase));
      fill(cl, buffer, bytes_of(phase));
    }
    need(clFinish(cl.queue), "clFinish");
    for (cl_mem buffer : buffers) clReleaseMemObject(buffer);
  }
  const size_t most = kBuffers * bytes_of(kPhases - 1) / kMiB, grown = most_resident_mib() - before;
  if (grown <= most * 23 / 20 + 32)
    say("little more than the largest phase");
  else
    say("%zu MiB, where %zu were in use at most", grown, most);
  // What fits beside each other is kept.
  for (int round = 0; round < 50; ++round)
    for (const size_t bytes : {60 * kMiB, 70 * kMiB}) clReleaseMemObject(cl.buffer(bytes));
  cl.release();
  return finish();
}
