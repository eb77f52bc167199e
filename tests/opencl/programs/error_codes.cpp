// Error codes of the calls that the pool stands in front of, before and after it holds something to give.
// harness: recycles
#include "observe.hpp"

static void create(const Setup& cl, const char* what, cl_context context, cl_mem_flags flags, size_t bytes,
                   void* host) {
  cl_int code = 12345;
  cl_mem made = counted(clCreateBuffer(context, flags, bytes, host, &code));
  say("%s: %d %s", what, code, made ? "made" : "null");
  if (made) clReleaseMemObject(made);
  made = counted(clCreateBuffer(context, flags, bytes, host, nullptr));
  say("%s, no place for the code: %s", what, made ? "made" : "null");
  if (made) clReleaseMemObject(made);
  (void)cl;
}

int main() {
  Setup cl;
  char host[4096];
  cl_ulong most = 0;
  clGetDeviceInfo(cl.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, nullptr);
  for (int round = 0; round < 3; ++round) {
    create(cl, "ordinary", cl.context, CL_MEM_READ_WRITE, 4096, nullptr);
    create(cl, "zero bytes", cl.context, CL_MEM_READ_WRITE, 0, nullptr);
    create(cl, "unknown flag", cl.context, cl_mem_flags{1} << 40, 4096, nullptr);
    create(cl, "two access flags", cl.context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 4096, nullptr);
    create(cl, "use and alloc", cl.context, CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, 4096, host);
    create(cl, "use and copy", cl.context, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 4096, host);
    create(cl, "pointer without flag", cl.context, CL_MEM_READ_WRITE, 4096, host);
    create(cl, "flag without pointer", cl.context, CL_MEM_USE_HOST_PTR, 4096, nullptr);
    create(cl, "copy without pointer", cl.context, CL_MEM_COPY_HOST_PTR, 4096, nullptr);
    create(cl, "no context", nullptr, CL_MEM_READ_WRITE, 4096, nullptr);
    create(cl, "above the maximum", cl.context, CL_MEM_READ_WRITE, most + 1, nullptr);
    create(cl, "all there is", cl.context, CL_MEM_READ_WRITE, SIZE_MAX, nullptr);
    say("release nothing %d", clReleaseMemObject(nullptr));
    say("retain nothing %d", clRetainMemObject(nullptr));
    say("query nothing %d", clGetMemObjectInfo(nullptr, CL_MEM_SIZE, 0, nullptr, nullptr));
    say("sub-buffer of nothing %s", sub_buffer(nullptr, 0, 16) ? "made" : "null");
    say("write to nothing %d", clEnqueueWriteBuffer(cl.queue, nullptr, CL_TRUE, 0, 16, host, 0, nullptr, nullptr));
    cl_mem buffer = cl.buffer(4096);
    say("no queue %d", clEnqueueWriteBuffer(nullptr, buffer, CL_TRUE, 0, 16, host, 0, nullptr, nullptr));
    say("no host memory %d", clEnqueueWriteBuffer(cl.queue, buffer, CL_TRUE, 0, 16, nullptr, 0, nullptr, nullptr));
    say("wait list without events %d",
        clEnqueueWriteBuffer(cl.queue, buffer, CL_TRUE, 0, 16, host, 1, nullptr, nullptr));
    cl_event none = nullptr;
    say("wait list of nothing %d", clEnqueueWriteBuffer(cl.queue, buffer, CL_TRUE, 0, 16, host, 1, &none, nullptr));
    say("read nothing %d", clEnqueueReadBuffer(cl.queue, buffer, CL_TRUE, 0, 0, host, 0, nullptr, nullptr));
    clReleaseMemObject(buffer);
    say("release no context %d", clReleaseContext(nullptr));
    say("release no queue %d", clReleaseCommandQueue(nullptr));
    say("release no event %d", clReleaseEvent(nullptr));
    say("finish no queue %d", clFinish(nullptr));
    // A command that fails: those behind it, and the buffer's later life.
    cl_mem doomed = cl.buffer(4096);
    cl_event gate = cl.gate(), waiting = nullptr;
    std::vector<uint32_t> words(1024, 5);
    clEnqueueWriteBuffer(cl.queue, doomed, CL_FALSE, 0, 4096, words.data(), 1, &gate, &waiting);
    clReleaseMemObject(doomed);
    clSetUserEventStatus(gate, -77);
    cl_int status = 1;
    eventually([&] {
      clGetEventInfo(waiting, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
      return status <= 0;
    });
    say("behind a failed event: %s", status < 0 ? "failed" : "complete");
    clReleaseEvent(gate);
    clReleaseEvent(waiting);
    cl_command_queue fresh = cl.make_queue();
    cl_mem next = cl.buffer(4096);
    put(fresh, next, 4096, 6);
    say("next %s", contents(fresh, next, 4096).c_str());
    clReleaseMemObject(next);
    clReleaseCommandQueue(fresh);
  }
  cl.release();
  return finish();
}
