// The program ends while a user event was never completed: commands wait forever on buffers released long ago.
// Nothing may wait for them.
#include "observe.hpp"

constexpr size_t kBytes = 4096;
static std::vector<uint32_t> host(kBytes / 4, 3);

int main() {
  Setup cl;
  cl_command_queue side = cl.make_queue();
  for (int i = 0; i < 4; ++i) {
    cl_command_queue queue = cl.make_queue();
    cl_mem buffer = cl.buffer(kBytes), to = cl.buffer(kBytes);
    cl_event never = cl.gate();
    say("copy %d", clEnqueueCopyBuffer(queue, buffer, to, 0, 0, kBytes, 1, &never, nullptr));
    say("write %d", clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, kBytes, host.data(), 0, nullptr, nullptr));
    clReleaseMemObject(buffer);
    clReleaseMemObject(to);
    for (int j = 0; j < 3; ++j) {
      cl_mem next = cl.buffer(kBytes);
      put(side, next, kBytes, j);
      say("next %s", contents(side, next, kBytes).c_str());
      clReleaseMemObject(next);
    }
  }
  clReleaseCommandQueue(side);
  int code = finish();
  fflush(stdout);
  return code;
}
