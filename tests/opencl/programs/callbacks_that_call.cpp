// Destructor callbacks that themselves create, use and release memory objects, and register more callbacks.
// harness: recycles
#include "observe.hpp"

static Setup* cl;
static std::atomic<int> depth{0}, done{0};

static void CL_CALLBACK again(cl_mem, void*) {
  int level = ++depth;
  cl_mem made = cl->buffer(4096);
  if (level < 5) clSetMemObjectDestructorCallback(made, again, nullptr);
  cl_mem brief = cl->buffer(4096);
  clReleaseMemObject(brief);
  clReleaseMemObject(made);
  ++done;
}

static cl_mem partner;
static void CL_CALLBACK release_partner(cl_mem, void*) {
  clReleaseMemObject(partner);
  ++done;
}

int main() {
  Setup setup;
  cl = &setup;
  for (int round = 0; round < 3; ++round) {
    depth = 0;
    done = 0;
    cl_mem buffer = setup.buffer(4096);
    clSetMemObjectDestructorCallback(buffer, again, nullptr);
    clReleaseMemObject(buffer);
    eventually([] { return done == 5; });
    say("chain: %d callbacks", done.load());

    done = 0;
    partner = setup.buffer(4096);
    cl_mem owner = setup.buffer(4096);
    clSetMemObjectDestructorCallback(owner, release_partner, nullptr);
    put(setup.queue, owner, 4096, 1);
    put(setup.queue, partner, 4096, 2);
    clReleaseMemObject(owner);
    eventually([] { return done == 1; });
    say("owner released its partner: %d", done.load());
    cl_mem after[2] = {setup.buffer(4096), setup.buffer(4096)};
    put(setup.queue, after[0], 4096, 3);
    put(setup.queue, after[1], 4096, 4);
    say("after: %s, %s", contents(setup.queue, after[0], 4096).c_str(), contents(setup.queue, after[1], 4096).c_str());
    clReleaseMemObject(after[0]);
    clReleaseMemObject(after[1]);
  }
  setup.release();
  return finish();
}
