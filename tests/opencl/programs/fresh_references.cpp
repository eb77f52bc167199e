// A buffer that the program has just made has one reference, whatever the machine is busy with: released buffers whose
// commands are pending are given again at once, and the driver's own references to them must not be seen.
// harness: recycles
#include "observe.hpp"

#include <thread>

constexpr size_t kBytes = size_t{1} << 20;
constexpr int kBuffers = 1500;

// More threads than there are processors: the driver's have to wait for their turn.
class Load {
 public:
  Load() {
    const unsigned count = 3 * std::max(1u, std::thread::hardware_concurrency());
    for (unsigned i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        while (!ended_.load(std::memory_order_relaxed)) {
        }
      });
  }
  ~Load() {
    ended_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> ended_{false};
  std::vector<std::thread> threads_;
};

// Releases one whose last command is queued.
static void release_pending(const Setup& cl, cl_uint value) {
  cl_mem buffer = cl.buffer(kBytes);
  need(clEnqueueFillBuffer(cl.queue, buffer, &value, sizeof value, 0, kBytes, 0, nullptr, nullptr), "fill");
  need(clFlush(cl.queue), "clFlush");
  clReleaseMemObject(buffer);
}

// `ask(buffer)`: whether it looks as a fresh one does.
template <class Ask>
static void fresh_ones(const Setup& cl, const char* what, Ask ask) {
  int wrong = 0;
  for (int i = 0; i < kBuffers; ++i) {
    release_pending(cl, static_cast<cl_uint>(i));
    cl_mem buffer = cl.buffer(kBytes);
    if (!ask(buffer)) ++wrong;
    clReleaseMemObject(buffer);
    if (i % 8 == 0) need(clFinish(cl.queue), "clFinish");
  }
  need(clFinish(cl.queue), "clFinish");
  say("%s: %d of %d are wrong", what, wrong, kBuffers);
}

// From its first moment on nothing of the context is given again while it is in use.
static void another_queue() {
  constexpr int kContexts = 30;
  int wrong = 0;
  for (int i = 0; i < kContexts; ++i) {
    Setup cl;
    release_pending(cl, static_cast<cl_uint>(i));
    cl_mem buffer = cl.buffer(kBytes);
    cl_command_queue second = cl.make_queue();
    if (references_now(buffer) != 1) ++wrong;
    clReleaseMemObject(buffer);
    clReleaseCommandQueue(second);
    cl.release();
  }
  say("with another queue: %d of %d are wrong", wrong, kContexts);
}

int main() {
  Setup cl;
  {
    const Load load;
    fresh_ones(cl, "fresh buffers", [&](cl_mem buffer) { return references_now(buffer) == 1; });
    fresh_ones(cl, "retained once", [&](cl_mem buffer) {
      clRetainMemObject(buffer);
      const bool right = references_now(buffer) == 2;
      clReleaseMemObject(buffer);
      return right;
    });
    fresh_ones(cl, "after a blocking command", [&](cl_mem buffer) {
      put(cl.queue, buffer, 64, 1);
      return references_now(buffer) <= 2;  // the driver has not let go of that command yet
    });
    another_queue();
  }
  cl.release();
  return finish();
}
