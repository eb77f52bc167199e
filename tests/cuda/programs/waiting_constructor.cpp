// A plugin's constructor waits for a worker that makes CUDA calls, some of them for the first time, some from a module
// that is new; so does its destructor. Both run under the dynamic linker's lock, which no call may take by then.
// harness: recycles=device
// harness: link=shared
// harness: without-gather=a simulated stream's first command waits for the dynamic linker
#include <dlfcn.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "../program.hpp"

namespace {
std::mutex lock;
std::condition_variable changed;
void (*work)() = nullptr;
bool ended = false;

// (The simulated driver takes the linker's lock at the first call of a thread.)
void serve() {
  void* block = nullptr;
  NEED(cudaMalloc(&block, 3000));
  NEED(cudaFree(block));
  std::unique_lock<std::mutex> hold(lock);
  while (true) {
    changed.wait(hold, [] { return work || ended; });
    if (ended) return;
    hold.unlock();
    work();
    hold.lock();
    work = nullptr;
    changed.notify_all();
  }
}
}  // namespace

extern "C" void do_on_worker(void (*wanted)()) {
  std::unique_lock<std::mutex> hold(lock);
  work = wanted;
  changed.notify_all();
  if (!changed.wait_for(hold, std::chrono::seconds(20), [] { return !work; })) {
    say("the worker waits for the dynamic linker");
    _exit(1);
  }
}

// None but the first two was called before.
extern "C" void calls_of_the_program() {
  unsigned word = 7, back = 0;
  void* block = nullptr;
  NEED(cudaMalloc(&block, 3000));
  NEED(cudaMemcpy(block, &word, sizeof word, cudaMemcpyHostToDevice));
  NEED(cudaMemcpyAsync(&back, block, sizeof word, cudaMemcpyDeviceToHost, nullptr));
  NEED(cudaDeviceSynchronize());
  NEED(cudaFree(block));
  void *host = nullptr, *ordered = nullptr, *managed = nullptr, *rows = nullptr;
  size_t pitch = 0;
  NEED(cudaMallocHost(&host, 3000));
  NEED(cudaFreeHost(host));
  NEED(cudaMallocAsync(&ordered, 3000, nullptr));
  NEED(cudaFreeAsync(ordered, nullptr));
  NEED(cudaMallocManaged(&managed, 3000));
  NEED(cudaFree(managed));
  NEED(cudaMallocPitch(&rows, &pitch, 1000, 3));
  NEED(cudaFree(rows));
  say("%u", back);
}

int main(int, char** argv) {
  std::thread worker(serve);
  do_on_worker([] {});
  const std::string self = argv[0], plugin = self.substr(0, self.rfind('/') + 1) + "libwaiting.so";
  for (int round = 0; round < 2; ++round) {
    void* library = dlopen(plugin.c_str(), RTLD_NOW);
    if (!library) {
      say("%s", dlerror());
      return 90;
    }
    dlclose(library);
  }
  {
    const std::lock_guard<std::mutex> hold(lock);
    ended = true;
    changed.notify_all();
  }
  worker.join();
  constexpr int kRounds = 4;  // two of each constructor and destructor
  made.device = 1 + kRounds * 3;
  made.pinned = kRounds * 2;
  made.async = made.managed = kRounds;
  return finish();
}
