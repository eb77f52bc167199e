// Buffers released, retained and made inside event callbacks, on the implementation's own threads.
// harness: recycles
#include "observe.hpp"

constexpr size_t kBytes = 4096;

struct Job {
  const Setup* cl;
  cl_mem source, target;
  std::atomic<int> done{0};
  cl_int codes[3] = {1, 1, 1};
};

static void CL_CALLBACK let_go(cl_event, cl_int status, void* data) {
  Job& job = *static_cast<Job*>(data);
  job.codes[0] = clRetainMemObject(job.source);
  job.codes[1] = clReleaseMemObject(job.source);
  job.codes[2] = clReleaseMemObject(job.source);
  clReleaseMemObject(job.cl->buffer(kBytes));
  job.done = status == CL_COMPLETE ? 1 : 2;
}

static void one(const Setup& cl, cl_command_queue side, uint32_t word, bool gated) {
  Job job{&cl, cl.buffer(kBytes), cl.buffer(kBytes)};
  put(side, job.source, kBytes, word);
  cl_event gate = cl.gate(), copied = nullptr;
  need(clEnqueueCopyBuffer(cl.queue, job.source, job.target, 0, 0, kBytes, gated ? 1 : 0, gated ? &gate : nullptr,
                           &copied),
       "copy");
  say("callback %d", clSetEventCallback(copied, CL_COMPLETE, let_go, &job));
  clFlush(cl.queue);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(cl.queue);
  eventually([&] { return job.done != 0; });
  say("done %d, codes %d %d %d, target %s", job.done.load(), job.codes[0], job.codes[1], job.codes[2],
      contents(side, job.target, kBytes).c_str());
  clReleaseMemObject(job.target);
  clReleaseEvent(copied);
  clReleaseEvent(gate);
}

// The callback of a user event runs inside clSetUserEventStatus.
static void of_user_event(const Setup& cl, cl_command_queue side) {
  Job job{&cl, cl.buffer(kBytes), nullptr};
  put(side, job.source, kBytes, 1);
  cl_event gate = cl.gate();
  say("callback %d", clSetEventCallback(gate, CL_COMPLETE, let_go, &job));
  clSetUserEventStatus(gate, CL_COMPLETE);
  eventually([&] { return job.done != 0; });
  say("user event: done %d, codes %d %d %d", job.done.load(), job.codes[0], job.codes[1], job.codes[2]);
  clReleaseEvent(gate);
}

int main() {
  Setup cl;
  cl_command_queue side = cl.make_queue();
  for (uint32_t round = 0; round < 10; ++round) {
    one(cl, side, round, false);
    one(cl, side, 100 + round, true);
    of_user_event(cl, side);
  }
  clReleaseCommandQueue(side);
  cl.release();
  return finish();
}
