// A pooled buffer must not keep its context visibly alive: counts, the context's own destructor callback at the same
// moment as without a pool, contexts released before their buffers, and contexts made again.
#include "observe.hpp"

constexpr size_t kBytes = 4096;
static std::atomic<int> destroyed{0};
static void CL_CALLBACK context_gone(cl_context, void*) { ++destroyed; }

static void counts(const Setup& cl) {
  cl_context context = cl.make_context();
  cl_int code = 0;
  say("fresh context %u", references(context));
  cl_mem buffers[3];
  for (cl_mem& buffer : buffers) {
    buffer = counted(clCreateBuffer(context, 0, kBytes, nullptr, &code));
    say("buffer made: %u", references(context));
  }
  for (cl_mem buffer : buffers) {
    clReleaseMemObject(buffer);
    say("buffer released: %u", references(context));
  }
  cl_mem again = counted(clCreateBuffer(context, 0, kBytes, nullptr, &code));
  say("buffer made again: %u", references(context));
  cl_mem part = sub_buffer(again, 0, 1024);
  say("sub-buffer: %u", references(context));
  clReleaseMemObject(again);
  say("parent released: %u", references(context));
  clReleaseMemObject(part);
  say("part released: %u", references(context));
  clRetainContext(context);
  say("retained: %u", references(context));
  clReleaseContext(context);
  say("released: %u", references(context));
  clReleaseContext(context);
}

static void destructor(const Setup& cl, int buffers, bool context_first) {
  destroyed = 0;
  cl_context context = cl.make_context();
  say("callback registered %d", clSetContextDestructorCallback(context, context_gone, nullptr));
  std::vector<cl_mem> made;
  for (int i = 0; i < buffers; ++i) made.push_back(counted(clCreateBuffer(context, 0, kBytes, nullptr, nullptr)));
  if (buffers > 1) {  // one is made again and one is let go while the context lives
    clReleaseMemObject(made.back());
    made.back() = counted(clCreateBuffer(context, 0, kBytes, nullptr, nullptr));
    clReleaseMemObject(made.back());
    made.pop_back();
  }
  if (context_first) {
    say("context released %d", clReleaseContext(context));
    say("destroyed %d", destroyed.load());
  }
  for (cl_mem memory : made) {
    clReleaseMemObject(memory);
    say("buffer released: destroyed %d", destroyed.load());
  }
  if (!context_first) say("context released %d", clReleaseContext(context));
  say("destroyed at the end %d", destroyed.load());
}

static void with_queue(const Setup& cl) {
  destroyed = 0;
  cl_context context = cl.make_context();
  clSetContextDestructorCallback(context, context_gone, nullptr);
  cl_int code = 0;
  cl_command_queue queue = clCreateCommandQueue(context, cl.device, 0, &code);
  say("queue %u, context %u", references(queue), references(context));
  for (int i = 0; i < 3; ++i) {
    cl_mem buffer = counted(clCreateBuffer(context, 0, kBytes, nullptr, &code));
    put(queue, buffer, kBytes, 100 + i);
    say("in use: %s", contents(queue, buffer, kBytes).c_str());
    clReleaseMemObject(buffer);
    clFinish(queue);
    eventually([&] { return references(queue) == 1; });
    say("idle: queue %u, context %u", references(queue), references(context));
  }
  clRetainCommandQueue(queue);
  say("queue retained %u", references(queue));
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
  say("context released, queue alive: destroyed %d", destroyed.load());
  clReleaseCommandQueue(queue);
  say("queue released: destroyed %s", eventually([] { return destroyed == 1; }) ? "once" : "not");
}

// The program let its context go, and still makes buffers through one it got from a query.
static void borrowed(const Setup& cl) {
  destroyed = 0;
  cl_context context = cl.make_context();
  clSetContextDestructorCallback(context, context_gone, nullptr);
  cl_int code = 0;
  cl_mem buffer = counted(clCreateBuffer(context, 0, kBytes, nullptr, &code));
  clReleaseContext(context);
  auto through = memory_info<cl_context>(buffer, CL_MEM_CONTEXT);
  say("same context %s, count %u", through == context ? "yes" : "no", references(through));
  for (int i = 0; i < 3; ++i) {
    cl_mem more = counted(clCreateBuffer(through, 0, kBytes, nullptr, &code));
    say("made %d through it, count %u", code, references(through));
    clReleaseMemObject(more);
    say("released, count %u, destroyed %d", references(through), destroyed.load());
  }
  clReleaseMemObject(buffer);
  say("last buffer released: destroyed %d", destroyed.load());
}

int main() {
  Setup cl;
  for (int round = 0; round < 3; ++round) {
    counts(cl);
    for (int buffers = 0; buffers < 4; ++buffers) {
      destructor(cl, buffers, true);
      destructor(cl, buffers, false);
    }
    with_queue(cl);
    borrowed(cl);
  }
  say("no callback: %d", clSetContextDestructorCallback(cl.context, nullptr, nullptr));
  cl.release();
  return finish();
}
