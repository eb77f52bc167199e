// A buffer released once too often, at once and after others of its key were made.
// harness: only-shimmed
// harness: stderr=cistern: clReleaseMemObject\(0x[0-9a-f]+\): buffer already released, created at .*observe\.hpp:\d+\), released at main \(.*misuse_double_release\.cpp:\d+\); CL_INVALID_MEM_OBJECT returned
// harness: stderr=cistern: clReleaseMemObject\(0x[0-9a-f]+\): buffer already released, created at .*observe\.hpp:\d+\), released at main \(.*misuse_double_release\.cpp:\d+\); CL_INVALID_MEM_OBJECT returned
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
