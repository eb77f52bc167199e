// Buffers released while their commands wait on a user event; buffers of the same key made and written at once
// must be other storage. In-order and out-of-order queues, every kind of command, two queues.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 32768;
constexpr size_t kWords = kBytes / 4;

enum Command { kWrite, kRead, kCopyFrom, kCopyTo, kFill, kRectWrite, kRectCopy, kKernel, kMap, kMigrate, kCommands };
static const char* const kNames[kCommands] = {"write",      "read",      "copy from", "copy to", "fill",
                                              "rect write", "rect copy", "kernel",    "map",     "migrate"};

struct Pending {
  std::vector<uint32_t> host = std::vector<uint32_t>(kWords, 500);
  void* mapped = nullptr;
};

// `subject` is the buffer that will be released; `witness` receives what it holds. Everything waits on the gate.
static cl_int enqueue(const Setup& cl, cl_command_queue queue, cl_kernel add, Command command, cl_mem subject,
                      cl_mem witness, cl_event gate, cl_event* event, Pending& pending) {
  size_t origin[3] = {0, 0, 0}, region[3] = {256, kBytes / 256, 1};
  uint32_t pattern = 700;
  cl_int code = 0;
  switch (command) {
    case kWrite:
      return clEnqueueWriteBuffer(queue, subject, CL_FALSE, 0, kBytes, pending.host.data(), 1, &gate, event);
    case kRead:
      return clEnqueueReadBuffer(queue, subject, CL_FALSE, 0, kBytes, pending.host.data(), 1, &gate, event);
    case kCopyFrom:
      return clEnqueueCopyBuffer(queue, subject, witness, 0, 0, kBytes, 1, &gate, event);
    case kCopyTo:
      return clEnqueueCopyBuffer(queue, witness, subject, 0, 0, kBytes, 1, &gate, event);
    case kFill:
      return clEnqueueFillBuffer(queue, subject, &pattern, 4, 0, kBytes, 1, &gate, event);
    case kRectWrite:
      return clEnqueueWriteBufferRect(queue, subject, CL_FALSE, origin, origin, region, 256, 0, 256, 0,
                                      pending.host.data(), 1, &gate, event);
    case kRectCopy:
      return clEnqueueCopyBufferRect(queue, subject, witness, origin, origin, region, 256, 0, 256, 0, 1, &gate, event);
    case kKernel: {
      cl_uint amount = 1000;
      clSetKernelArg(add, 0, sizeof subject, &subject);
      clSetKernelArg(add, 1, sizeof amount, &amount);
      size_t global = kWords;
      return clEnqueueNDRangeKernel(queue, add, 1, nullptr, &global, nullptr, 1, &gate, event);
    }
    case kMap:
      pending.mapped = clEnqueueMapBuffer(queue, subject, CL_FALSE, CL_MAP_READ, 0, kBytes, 1, &gate, event, &code);
      return code;
    case kMigrate:
      return clEnqueueMigrateMemObjects(queue, 1, &subject, 0, 1, &gate, event);
    case kCommands:
      break;
  }
  (void)cl;
  return -1;
}

static void one(const Setup& cl, cl_command_queue queue, cl_command_queue other, cl_kernel add, Command command,
                bool with_event) {
  cl_mem subject = cl.buffer(kBytes), witness = cl.buffer(kBytes);
  put(other, subject, kBytes, 1);
  put(other, witness, kBytes, 2);
  cl_event gate = cl.gate(), event = nullptr, copied = nullptr;
  Pending pending;
  cl_int code = enqueue(cl, queue, add, command, subject, witness, gate, with_event ? &event : nullptr, pending);
  // What the subject holds afterwards goes to the witness, in order after the command.
  bool follow = command == kWrite || command == kFill || command == kRectWrite || command == kKernel;
  cl_int followed = 0;
  if (follow) {
    followed = clEnqueueCopyBuffer(queue, subject, witness, 0, 0, kBytes, with_event ? 1 : 0,
                                   with_event ? &event : nullptr, &copied);
  }
  if (command == kMap)
    clEnqueueUnmapMemObject(queue, subject, pending.mapped, with_event ? 1 : 0, with_event ? &event : nullptr, nullptr);
  cl_int released = clReleaseMemObject(subject);
  std::vector<cl_mem> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(cl.buffer(kBytes));
    put(other, others.back(), kBytes, 9000 + i);
  }
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(queue);
  say("%s%s: %d %d, released %d", kNames[command], with_event ? " with event" : "", code, followed, released);
  say("  witness %s; host %s", contents(other, witness, kBytes).c_str(), describe(pending.host).c_str());
  for (cl_mem memory : others) say("  other %s", contents(other, memory, kBytes).c_str());
  for (cl_mem memory : others) clReleaseMemObject(memory);
  clReleaseMemObject(witness);
  clReleaseEvent(gate);
  if (event) clReleaseEvent(event);
  if (copied) clReleaseEvent(copied);
}

int main() {
  Setup cl;
  cl_program program = cl.program();
  cl_kernel add = kernel_of(program, "add");
  cl_command_queue other = cl.make_queue();
  cl_command_queue unordered = cl.make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  for (int round = 0; round < 2; ++round) {
    for (int command = 0; command < kCommands; ++command) {
      say("in order, round %d", round);
      one(cl, cl.queue, other, add, static_cast<Command>(command), false);
      one(cl, cl.queue, other, add, static_cast<Command>(command), true);
      say("out of order, round %d", round);
      one(cl, unordered, other, add, static_cast<Command>(command), true);
    }
  }
  clReleaseKernel(add);
  clReleaseProgram(program);
  clReleaseCommandQueue(unordered);
  clReleaseCommandQueue(other);
  cl.release();
  return finish();
}
