// The streams that capture, and whether the calling thread may make calls that capture forbids, by the documented rules
// of cuThreadExchangeStreamCaptureMode. Not calls of our own: those wait until no stream captures (CallGate).
#pragma once
#include "backends/cuda/functions.hpp"
#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"

namespace cistern::cuda {

class Captures {
 public:
  explicit Captures(CallGate& gate) : gate_(gate) {}

  // To be called before the real call. Waits for calls of our own that are in flight, but not forever: one may wait for
  // work that waits for this thread. `per_thread`: the stream handles 0 and 2 mean the calling thread's own stream.
  void begun(CUstream stream, bool per_thread, int mode, CUcontext context);
  void ended(CUstream stream, bool per_thread);
  bool capturing(CUstream stream, bool per_thread);
  // A stream or context that goes away takes its captures along.
  void stream_gone(CUstream stream);
  void context_gone(CUcontext context);
  // The calling thread's mode, after a real exchange that succeeded.
  static void mode_exchanged(int mode);

  bool any() const { return gate_.captures.load(std::memory_order_acquire) != 0; }
  bool forbid_unsafe_calls() { return any() && forbid_unsafe_calls_of_this_thread(); }

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }
  void forget_in_child();

 private:
  struct Capture {
    CUstream stream;
    int thread;  // who began it
    int owner;   // the thread whose per-thread default stream it is, else 0
    int mode;
    CUcontext context;
  };
  bool forbid_unsafe_calls_of_this_thread();
  template <class Which>
  void remove_if(Which which);

  CallGate& gate_;
  Lock lock_;
  Vector<Capture> captures_;
};

}  // namespace cistern::cuda
