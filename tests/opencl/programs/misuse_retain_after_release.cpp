// A retain, and then a release, after the last release.
// harness: only-shimmed
// harness: stderr=cistern: clRetainMemObject\(0x[0-9a-f]+\): buffer already released, created at .*observe\.hpp:\d+\), released at main \(.*misuse_retain_after_release\.cpp:\d+\); CL_INVALID_MEM_OBJECT returned
// harness: stderr=cistern: clReleaseMemObject\(0x[0-9a-f]+\): buffer already released, created at .*observe\.hpp:\d+\), released at main \(.*misuse_retain_after_release\.cpp:\d+\); CL_INVALID_MEM_OBJECT returned
#include "observe.hpp"

int main() {
  Setup cl;
  cl_mem buffer = cl.buffer(4096);
  put(cl.queue, buffer, 4096, 1);
  say("release %d", clReleaseMemObject(buffer));
  say("retain %d", clRetainMemObject(buffer));
  say("release %d", clReleaseMemObject(buffer));
  cl.release();
  return finish();
}
