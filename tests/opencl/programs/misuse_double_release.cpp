// A buffer released once too often, at once and after others of its key were made.
// harness: only-shimmed
// harness: stderr=cistern: clReleaseMemObject\(0x\w+\): buffer already released, created at .+, released at main .+
// harness: stderr=cistern: clReleaseMemObject\(0x\w+\): buffer already released, created at .+, released at main .+
#include "observe.hpp"

int main() {
  Setup cl;
  cl_mem buffer = cl.buffer(4096);
  put(cl.queue, buffer, 4096, 1);
  say("first release %d", clReleaseMemObject(buffer));
  say("second release %d", clReleaseMemObject(buffer));
  say("third release %d", clReleaseMemObject(buffer));
  cl_mem next[3];
  for (int i = 0; i < 3; ++i) put(cl.queue, next[i] = cl.buffer(4096), 4096, i);
  for (int i = 0; i < 3; ++i) say("next %s, count %u", contents(cl.queue, next[i], 4096).c_str(), references(next[i]));
  for (cl_mem memory : next) say("release %d", clReleaseMemObject(memory));
  cl.release();
  return finish();
}
