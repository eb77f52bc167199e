// The state of each thread. What ends with a thread is in stream.cpp: its default streams.
#include "tests/simcuda/driver/thread_state.hpp"

#include <unistd.h>

#include <atomic>

#include "tests/simcuda/driver/context.hpp"

namespace simcuda {
namespace {
constinit std::atomic<uint64_t> last_thread{0};

// The main thread calls on after its thread-local objects are gone, from exit handlers: its state stays.
struct AtThreadEnd {
  ThreadState* state = new ThreadState;
  ~AtThreadEnd() {
    if (gettid() != getpid()) delete state;
  }
};
}  // namespace

ThreadState::ThreadState() : id(++last_thread) {}

// [assumed] The per-thread default stream of a thread that has ended runs what is queued, then it is gone.
ThreadState::~ThreadState() {
  if (process_state() != ProcessState::kReady) return;
  Locked lock = lock_driver();
  for (Context* context : driver().contexts) {
    const auto found = context->per_thread.find(id);
    if (found == context->per_thread.end()) continue;
    retire_stream(lock, found->second);
    context->per_thread.erase(found);
  }
}

ThreadState& this_thread() {
  static thread_local AtThreadEnd owner;
  return *owner.state;
}

}  // namespace simcuda
