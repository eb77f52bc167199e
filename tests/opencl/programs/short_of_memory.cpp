// On a driver with little memory (layers/driver.cpp): what was released is there for the next request, whoever asks,
// for memory of any kind, and whatever the other threads are doing at that moment.
// harness: driver-layer
// harness: stderr=cistern: clCreateBuffer of 64.0 MiB: out of memory .+; device 0: .+this call at each_kind \(.+:\d+\)
#include "observe.hpp"

#include <random>
#include <thread>

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kLimit = 64 * kMiB;  // of layers/driver.cpp

// Leaves `bytes` of released buffers, none of a size that is asked for later.
static void release_much(const Setup& cl, size_t bytes = 60 * kMiB) {
  for (size_t left = bytes; left >= 4 * kMiB; left -= 4 * kMiB) {
    cl_mem buffer = cl.buffer(4 * kMiB - 4096 - left / kMiB, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR);
    clReleaseMemObject(buffer);
  }
}

static void each_kind(const Setup& cl) {
  static char host[8 * kMiB];
  const size_t bytes = 8 * kMiB;
  const cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc description{};
  description.image_type = CL_MEM_OBJECT_IMAGE2D;
  description.image_width = 2048;
  description.image_height = 1024;
  const auto made = [](const char* what, cl_int code, cl_mem memory) {
    say("%s: %d %s", what, code, counted(memory) ? "made" : "null");
    if (memory) clReleaseMemObject(memory);
  };
  cl_int code = 12345;
  release_much(cl);
  cl_mem buffer = clCreateBuffer(cl.context, CL_MEM_ALLOC_HOST_PTR, bytes, nullptr, &code);
  made("buffer", code, buffer);
  release_much(cl);
  buffer = clCreateBuffer(cl.context, CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR, bytes, host, &code);
  made("buffer of host bytes", code, buffer);
  release_much(cl);
  buffer = clCreateBuffer(cl.context, CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR, bytes, host, nullptr);
  made("buffer, no place for the code", 0, buffer);
  release_much(cl);
  buffer = clCreateBufferWithProperties(cl.context, nullptr, CL_MEM_READ_WRITE, bytes, nullptr, &code);
  made("buffer with properties", code, buffer);
  release_much(cl);
  cl_mem image = clCreateImage(cl.context, CL_MEM_READ_WRITE, &format, &description, nullptr, &code);
  made("image", code, image);
  release_much(cl);
  image = clCreateImage2D(cl.context, CL_MEM_READ_WRITE, &format, 2048, 1024, 0, nullptr, &code);
  made("image of old", code, image);
  release_much(cl);
  void* shared = clSVMAlloc(cl.context, CL_MEM_READ_WRITE, bytes, 0);
  say("shared virtual memory: %s", shared ? "made" : "null");
  if (shared) ++creations, clSVMFree(cl.context, shared);
  buffer = cl.buffer(bytes);
  release_much(cl);
  say("first write: %d", clEnqueueWriteBuffer(cl.queue, buffer, CL_TRUE, 0, 64, host, 0, nullptr, nullptr));
  clReleaseMemObject(buffer);
  // More than there is stays an error, of the driver.
  release_much(cl);
  buffer = clCreateBuffer(cl.context, CL_MEM_ALLOC_HOST_PTR, kLimit + 4096, nullptr, &code);
  made("more than there is", code, buffer);
}

// The threads never hold more than the limit together, so none of their requests may fail.
static void threads_that_share_it(const Setup& cl, unsigned seed) {
  constexpr int kThreads = 8, kRounds = 400;
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      std::minstd_rand random(seed + thread);
      for (int round = 0; round < kRounds; ++round) {
        const size_t bytes = kLimit / kThreads - 64 * (random() % 4096);
        cl_mem buffer = counted(clCreateBuffer(cl.context, CL_MEM_ALLOC_HOST_PTR, bytes, nullptr, nullptr));
        if (!buffer) ++failed;
        if (buffer) clReleaseMemObject(buffer);
      }
    });
  for (std::thread& thread : threads) thread.join();
  say("%d threads, seed %u: %d requests failed", kThreads, seed, failed.load());
}

int main() {
  Setup cl;
  each_kind(cl);
  for (unsigned seed = 1; seed <= 3; ++seed) threads_that_share_it(cl, seed);
  cl.release();
  return finish();
}
