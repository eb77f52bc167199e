// Releases and retains of what never was a memory object: a number, a stack address, another kind of handle.
// harness: only-shimmed
// harness: stderr=cistern: clReleaseMemObject\(0x1234560\): not a memory object; CL_INVALID_MEM_OBJECT returned
// harness: stderr=cistern: clReleaseMemObject\(0x[0-9a-f]+\): not a memory object; CL_INVALID_MEM_OBJECT returned
// harness: stderr=cistern: clReleaseMemObject\(0x[0-9a-f]+\): not a memory object; CL_INVALID_MEM_OBJECT returned
// harness: stderr=cistern: clRetainMemObject\(0x1234560\): not a memory object; CL_INVALID_MEM_OBJECT returned
#include "observe.hpp"

int main() {
  Setup cl;
  cl_mem buffer = cl.buffer(4096);
  put(cl.queue, buffer, 4096, 1);
  char stack[64] = {};
  say("a number %d", clReleaseMemObject(reinterpret_cast<cl_mem>(uintptr_t{0x1234560})));
  say("a stack address %d", clReleaseMemObject(reinterpret_cast<cl_mem>(stack)));
  say("a context %d", clReleaseMemObject(reinterpret_cast<cl_mem>(cl.context)));
  say("retain of a number %d", clRetainMemObject(reinterpret_cast<cl_mem>(uintptr_t{0x1234560})));
  say("nothing %d", clReleaseMemObject(nullptr));
  say("the buffer lives: %s, count %u", contents(cl.queue, buffer, 4096).c_str(), references(buffer));
  say("release %d", clReleaseMemObject(buffer));
  cl.release();
  return finish();
}
