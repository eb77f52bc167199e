// The plugin of plugin_client: linked with libOpenCL, loaded RTLD_LOCAL, so that OpenCL is in no global scope.
#include "observe.hpp"

extern "C" [[gnu::visibility("default")]] int plugin_run(int first_word) {
  int before = creations;
  Setup cl;
  for (int round = 0; round < 4; ++round) {
    cl_mem buffer = cl.buffer(4096);
    put(cl.queue, buffer, 4096, first_word + round);
    say("plugin: %s, count %u", contents(cl.queue, buffer, 4096).c_str(), references(buffer));
    clReleaseMemObject(buffer);
  }
  cl.release();
  return creations - before;
}
