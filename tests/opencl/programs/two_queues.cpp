// A buffer whose commands wait in two queues of which one finishes first; and a queue that was released while its
// commands were pending.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 16384;

static void two_gates(const Setup& cl, cl_command_queue side, bool first_first) {
  cl_command_queue a = cl.make_queue(), b = cl.make_queue();
  cl_mem subject = cl.buffer(kBytes), from_a = cl.buffer(kBytes), from_b = cl.buffer(kBytes);
  put(side, subject, kBytes, 1);
  cl_event gates[2] = {cl.gate(), cl.gate()};
  need(clEnqueueCopyBuffer(a, subject, from_a, 0, 0, kBytes, 1, &gates[0], nullptr), "copy");
  need(clEnqueueCopyBuffer(b, subject, from_b, 0, 0, kBytes, 1, &gates[1], nullptr), "copy");
  clReleaseMemObject(subject);
  cl_mem early = cl.buffer(kBytes);
  put(side, early, kBytes, 2);
  clSetUserEventStatus(gates[first_first ? 0 : 1], CL_COMPLETE);
  clFinish(first_first ? a : b);
  cl_mem between = cl.buffer(kBytes);
  put(side, between, kBytes, 3);
  clSetUserEventStatus(gates[first_first ? 1 : 0], CL_COMPLETE);
  clFinish(first_first ? b : a);
  cl_mem late = cl.buffer(kBytes);
  put(side, late, kBytes, 4);
  say("from a %s, from b %s, early %s, between %s, late %s", contents(side, from_a, kBytes).c_str(),
      contents(side, from_b, kBytes).c_str(), contents(side, early, kBytes).c_str(),
      contents(side, between, kBytes).c_str(), contents(side, late, kBytes).c_str());
  for (cl_mem memory : {from_a, from_b, early, between, late}) clReleaseMemObject(memory);
  clReleaseEvent(gates[0]);
  clReleaseEvent(gates[1]);
  clReleaseCommandQueue(a);
  clReleaseCommandQueue(b);
}

static void queue_released_first(const Setup& cl, cl_command_queue side) {
  cl_command_queue queue = cl.make_queue();
  cl_mem subject = cl.buffer(kBytes), witness = cl.buffer(kBytes);
  put(side, subject, kBytes, 5);
  cl_event gate = cl.gate(), done = nullptr;
  need(clEnqueueCopyBuffer(queue, subject, witness, 0, 0, kBytes, 1, &gate, &done), "copy");
  say("queue released %d", clReleaseCommandQueue(queue));
  say("buffer released %d", clReleaseMemObject(subject));
  cl_mem others[3];
  for (cl_mem& other : others) put(side, other = cl.buffer(kBytes), kBytes, 6);
  clSetUserEventStatus(gate, CL_COMPLETE);
  say("wait %d", clWaitForEvents(1, &done));
  say("witness %s", contents(side, witness, kBytes).c_str());
  for (cl_mem other : others) say("other %s", contents(side, other, kBytes).c_str());
  for (cl_mem other : others) clReleaseMemObject(other);
  clReleaseMemObject(witness);
  clReleaseEvent(done);
  clReleaseEvent(gate);
}

// The buffer's last command is in one queue and waits on an event of another queue.
static void across(const Setup& cl, cl_command_queue side) {
  cl_command_queue a = cl.make_queue(), b = cl.make_queue();
  cl_mem subject = cl.buffer(kBytes), witness = cl.buffer(kBytes);
  cl_event gate = cl.gate(), filled = nullptr;
  uint32_t pattern = 7;
  need(clEnqueueFillBuffer(a, subject, &pattern, 4, 0, kBytes, 1, &gate, &filled), "fill");
  need(clEnqueueCopyBuffer(b, subject, witness, 0, 0, kBytes, 1, &filled, nullptr), "copy");
  clReleaseEvent(filled);
  clReleaseMemObject(subject);
  cl_mem others[3];
  for (cl_mem& other : others) put(side, other = cl.buffer(kBytes), kBytes, 8);
  clFlush(a);
  clFlush(b);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(a);
  clFinish(b);
  say("across: witness %s", contents(side, witness, kBytes).c_str());
  for (cl_mem other : others) say("other %s", contents(side, other, kBytes).c_str());
  for (cl_mem other : others) clReleaseMemObject(other);
  clReleaseMemObject(witness);
  clReleaseEvent(gate);
  clReleaseCommandQueue(a);
  clReleaseCommandQueue(b);
}

int main() {
  Setup cl;
  for (int round = 0; round < 3; ++round) {
    two_gates(cl, cl.queue, true);
    two_gates(cl, cl.queue, false);
    queue_released_first(cl, cl.queue);
    across(cl, cl.queue);
  }
  cl.release();
  return finish();
}
