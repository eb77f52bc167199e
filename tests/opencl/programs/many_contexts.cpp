// Buffers never cross contexts, even when a new context gets the address of a destroyed one.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 4096;

int main() {
  Setup cl;
  cl_int code = 0;
  struct Side {
    cl_context context;
    cl_command_queue queue;
  } sides[3];
  for (Side& side : sides) {
    side.context = cl.make_context();
    side.queue = clCreateCommandQueue(side.context, cl.device, 0, &code);
  }
  for (uint32_t round = 0; round < 4; ++round) {
    for (Side& side : sides) {
      cl_mem buffer = counted(clCreateBuffer(side.context, 0, kBytes, nullptr, &code));
      put(side.queue, buffer, kBytes, round);
      say("own context %s, %s", memory_info<cl_context>(buffer, CL_MEM_CONTEXT) == side.context ? "yes" : "no",
          contents(side.queue, buffer, kBytes).c_str());
      for (Side& other : sides) {
        uint32_t word = 0;
        code = clEnqueueReadBuffer(other.queue, buffer, CL_TRUE, 0, 4, &word, 0, nullptr, nullptr);
        say("  read through a queue: %d", code);
      }
      clReleaseMemObject(buffer);
    }
  }
  for (Side& side : sides) {
    clReleaseCommandQueue(side.queue);
    clReleaseContext(side.context);
  }
  for (uint32_t round = 0; round < 20; ++round) {
    cl_context context = cl.make_context();
    cl_command_queue queue = clCreateCommandQueue(context, cl.device, 0, &code);
    cl_mem a = counted(clCreateBuffer(context, 0, kBytes, nullptr, &code));
    cl_mem b = counted(clCreateBuffer(context, 0, kBytes, nullptr, &code));
    clReleaseMemObject(a);
    put(queue, b, kBytes, round);
    a = counted(clCreateBuffer(context, 0, kBytes, nullptr, &code));
    put(queue, a, kBytes, round + 100);
    say("context %u: %s, %s, ours %s", round, contents(queue, a, kBytes).c_str(), contents(queue, b, kBytes).c_str(),
        memory_info<cl_context>(a, CL_MEM_CONTEXT) == context ? "yes" : "no");
    clReleaseMemObject(a);
    clReleaseMemObject(b);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
  }
  cl.release();
  return finish();
}
