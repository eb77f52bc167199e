// Many queues, each used once and released, while the buffers that they used live on: the driver's own count of the
// context's references, asked past everything that is in between, says how many of them it still has. (It may hold a
// few a moment longer: those of its last commands, and of a buffer's last command.)
// harness: recycles
#include "observe.hpp"

#include <CL/cl_icd.h>

constexpr int kQueues = 2000, kBuffers = 4;
constexpr size_t kBytes = 4096;

// What the driver says: a context's first word is its driver's dispatch table.
static int driver_references(cl_context context) {
  const auto* driver = *reinterpret_cast<const cl_icd_dispatch* const*>(context);
  cl_uint count = 0;
  driver->clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, nullptr);
  return static_cast<int>(count);
}

enum class Wait { for_event, by_finish, by_polling, not_at_all, behind_a_gate, count };
static const char* const kNames[] = {"waited for the event", "finished", "polled", "did not wait", "behind a gate"};

static void one(const Setup& cl, Wait wait, cl_mem buffer, cl_command_queue_properties properties) {
  static const uint32_t words[16] = {};
  cl_command_queue queue = cl.make_queue(properties);
  cl_event event = nullptr, gate = wait == Wait::behind_a_gate ? cl.gate() : nullptr;
  need(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof words, words, gate ? 1 : 0, gate ? &gate : nullptr,
                            &event),
       "write");
  if (wait == Wait::for_event) need(clWaitForEvents(1, &event), "wait");
  if (wait == Wait::by_finish) need(clFinish(queue), "finish");
  if (wait == Wait::by_polling) {
    clFlush(queue);
    cl_int status = 1;
    while (clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr), status > 0) {
    }
  }
  clReleaseEvent(event);
  clReleaseCommandQueue(queue);
  if (gate) {
    clSetUserEventStatus(gate, CL_COMPLETE);
    clReleaseEvent(gate);
  }
}

static void many(const Setup& cl, Wait wait, cl_command_queue_properties properties, bool release_buffers) {
  std::vector<cl_mem> buffers(kBuffers);
  for (cl_mem& buffer : buffers) buffer = cl.buffer(kBytes);
  const int before = driver_references(cl.context);
  for (int i = 0; i < kQueues; ++i) {
    cl_mem& buffer = buffers[i % kBuffers];
    one(cl, wait, buffer, properties);
    if (!release_buffers) continue;
    clReleaseMemObject(buffer);
    buffer = cl.buffer(kBytes);
  }
  clFinish(cl.queue);
  // A buffer and its last queue are the driver's to keep: one of each for every buffer, in the program or in a pool.
  const int allowed = before + 3 * kBuffers + 8;
  const bool gone = eventually([&] { return driver_references(cl.context) <= allowed; });
  say("%s, %s, buffers %s: %s", kNames[static_cast<int>(wait)], properties ? "out of order" : "in order",
      release_buffers ? "released" : "kept", gone ? "the queues are gone" : "queues stay");
  if (!gone) say("  %d references, %d before", driver_references(cl.context), before);
  for (cl_mem buffer : buffers) clReleaseMemObject(buffer);
}

int main() {
  Setup cl;
  for (int wait = 0; wait < static_cast<int>(Wait::count); ++wait)
    for (cl_command_queue_properties properties : {0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE})
      for (bool release_buffers : {false, true}) many(cl, static_cast<Wait>(wait), properties, release_buffers);
  cl.release();
  return finish();
}
