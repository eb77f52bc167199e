// Why order must be checked before reuse. The first half recycles naively, by hand, the way a pool without the check
// would: the pending copy then sees the next user's data. The second half does the same through release and create:
// the copy must see the first user's data.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 1 << 20;

static bool scenario(const Setup& cl, bool naive) {
  cl_command_queue side = cl.make_queue();
  cl_mem first = cl.buffer(kBytes), witness = cl.buffer(kBytes);
  put(side, first, kBytes, 1);
  cl_event gate = cl.gate();
  need(clEnqueueCopyBuffer(cl.queue, first, witness, 0, 0, kBytes, 1, &gate, nullptr), "copy");
  cl_mem second = first;
  if (!naive) {
    clReleaseMemObject(first);
    second = cl.buffer(kBytes);
  }
  put(side, second, kBytes, 2);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(cl.queue);
  std::string seen = contents(side, witness, kBytes);
  say("%s: witness %s, second %s", naive ? "reused at once by hand" : "released and created again", seen.c_str(),
      contents(side, second, kBytes).c_str());
  clReleaseMemObject(second);
  clReleaseMemObject(witness);
  clReleaseEvent(gate);
  clReleaseCommandQueue(side);
  return seen == (naive ? "all 2" : "all 1");
}

int main() {
  Setup cl;
  bool as_expected = true;
  for (int round = 0; round < 3; ++round) {
    as_expected &= scenario(cl, true);
    as_expected &= scenario(cl, false);
  }
  cl.release();
  return finish(as_expected ? 0 : 1);
}
