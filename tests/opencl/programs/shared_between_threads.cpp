// Threads retain and release the same buffer, and make and let go of buffers of its key, all at once: the count ends
// where it began and nobody's contents change.
// harness: recycles
#include <thread>

#include "observe.hpp"

constexpr size_t kBytes = 4096;

int main() {
  Setup cl;
  cl_mem shared = cl.buffer(kBytes);
  put(cl.queue, shared, kBytes, 77);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      cl_command_queue queue = cl.make_queue();
      for (uint32_t i = 0; i < 200; ++i) {
        failures += clRetainMemObject(shared) != CL_SUCCESS;
        cl_mem own = cl.buffer(kBytes);
        put(queue, own, kBytes, 1000 * thread + i);
        failures += contents(queue, own, kBytes) != "all " + std::to_string(1000 * thread + i);
        failures += clReleaseMemObject(own) != CL_SUCCESS;
        failures += contents(queue, shared, kBytes) != "all 77";
        failures += clReleaseMemObject(shared) != CL_SUCCESS;
      }
      clReleaseCommandQueue(queue);
    });
  }
  for (std::thread& thread : threads) thread.join();
  say("failures %d", failures.load());
  bool back = eventually([&] { return references(shared) == 1; });
  say("count %s, %s", back ? "back at one" : "not back at one", contents(cl.queue, shared, kBytes).c_str());
  say("last release %d", clReleaseMemObject(shared));
  cl.release();
  return finish(failures ? 1 : 0);
}
