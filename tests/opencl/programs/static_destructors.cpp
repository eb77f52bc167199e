// Objects released after main: by a static destructor, an atexit handler and a thread's destructor. No leak.
// harness: recycles
#include <thread>

#include "observe.hpp"

struct Holder {
  Setup cl;
  cl_mem buffer = nullptr;
  ~Holder() {
    cl_mem late = cl.buffer(4096);
    put(cl.queue, late, 4096, 9);
    printf("in a destructor: %s, %s\n", contents(cl.queue, buffer, 4096).c_str(),
           contents(cl.queue, late, 4096).c_str());
    printf("released %d %d\n", clReleaseMemObject(late), clReleaseMemObject(buffer));
    cl.release();
    finish();
  }
};

static Holder& holder() {
  static Holder instance;
  return instance;
}
static cl_mem for_atexit;
struct ThreadLocal {
  cl_mem buffer = nullptr;
  ~ThreadLocal() {
    if (buffer) printf("thread's destructor: %d\n", clReleaseMemObject(buffer));
  }
};
static thread_local ThreadLocal of_thread;

int main() {
  Setup& cl = holder().cl;
  holder().buffer = cl.buffer(4096);
  put(cl.queue, holder().buffer, 4096, 8);
  for_atexit = cl.buffer(4096);
  of_thread.buffer = cl.buffer(4096);
  for (int i = 0; i < 4; ++i) clReleaseMemObject(cl.buffer(4096));
  std::thread([&] { of_thread.buffer = cl.buffer(4096); }).join();
  atexit([] { printf("at exit: %d\n", clReleaseMemObject(for_atexit)); });
  say("main ends");
  return 0;
}
