// A retain, and then a release, after the last release.
// harness: only-shimmed
// harness: stderr=cistern: clRetainMemObject\(0x\w+\): buffer already released, created at .+, released at main .+
// harness: stderr=cistern: clReleaseMemObject\(0x\w+\): buffer already released, created at .+, released at main .+
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
