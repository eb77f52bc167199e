// A program that uses OpenCL executes itself; the child uses OpenCL too, with the same environment: what selects the
// ways in must survive (the ICD loader cuts OPENCL_LAYERS in place in the environment).
// harness: recycles
#include <sys/wait.h>

#include "observe.hpp"

static void work(const char* who) {
  Setup cl;
  for (uint32_t round = 0; round < 3; ++round) {
    cl_mem buffer = cl.buffer(4096);
    put(cl.queue, buffer, 4096, round);
    say("%s: %s", who, contents(cl.queue, buffer, 4096).c_str());
    clReleaseMemObject(buffer);
  }
  cl.release();
}

int main(int argc, char** argv) {
  work(argc > 1 ? argv[1] : "parent");
  finish();
  if (argc > 1) return 0;
  for (const char* name : {"first child", "second child"}) {
    pid_t child = fork();
    if (child == 0) {
      execl("/proc/self/exe", argv[0], name, nullptr);
      _exit(9);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say("%s: %d", name, WEXITSTATUS(status));
  }
  return 0;
}
