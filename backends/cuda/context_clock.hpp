// The clock of one context: whether all the work that was in its streams at some moment has ended, without waiting.
//
//   n = now()       a chunk is given back: all work that uses it was enqueued before
//   settled(n)      known from a synchronisation, else from a marker. A marker is one event on the legacy stream, which
//                   comes after all blocking streams and every thread's own default stream, and one event on each
//                   non-blocking stream. One marker is in flight at a time. The next one serves all questions that came
//                   meanwhile.
//
// A stream that is destroyed with work pending leaves an event behind, which the next marker includes. If it cannot,
// because no call may be made or one fails, the answer is `never` until the whole context is synchronised.
#pragma once
#include <atomic>
#include <cstdint>

#include "backends/cuda/functions.hpp"
#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/work_numbers.hpp"
#include "pool/source.hpp"

namespace cistern::cuda {

class ContextClock {
 public:
  ContextClock(const Functions& real, CallGate& gate) : real_(real), gate_(gate) {}
  ContextClock(const ContextClock&) = delete;
  ContextClock& operator=(const ContextClock&) = delete;

  std::uint64_t now() { return work_.next(); }
  // The last number given out. Read before a wait for the whole context: all up to it have ended then.
  std::uint64_t last() const { return work_.last(); }

  // Whether it is known without asking.
  bool known(std::uint64_t number) const { return work_.ended(number); }

  // Counts its driver calls in `calls`.
  Settled settled(CUcontext context, std::uint64_t number, DriverCalls& calls);

  // All work up to `number` has ended: a thread read last() and then waited for the whole context.
  void synchronised(std::uint64_t number);

  void stream_created(CUstream stream, bool non_blocking);
  // Before the real destroy.
  void stream_ends(CUcontext context, CUstream stream, DriverCalls& calls);

  // A stream has work whose begin was not seen: the next marker includes all that is enqueued there by now.
  void note_work(CUcontext context, CUstream stream, DriverCalls& calls);

  // The context is gone, and its work, events and streams with it.
  void forget();
  // In a forked child: another thread may have been in here.
  void forget_in_child();

 private:
  struct Marker {
    std::uint64_t number = 0;
    Vector<CUevent> events;
  };

  Settled ask(CUcontext context, std::uint64_t number, DriverCalls& calls);
  Settled poll(DriverCalls& calls);
  bool set_marker(DriverCalls& calls);
  bool record(CUstream stream, Vector<CUevent>& events, DriverCalls& calls);
  bool leave_behind(CUcontext context, CUstream stream, DriverCalls& calls);
  void reuse_left_behind(DriverCalls& calls);
  void begin_asking();
  void end_asking();

  const Functions& real_;
  CallGate& gate_;
  WorkNumbers work_;
  std::atomic<std::uint64_t> waited_{0};  // up to where the context was synchronised
  std::atomic<std::uint64_t> lost_{0};    // when a stream went whose work no marker can tell of
  std::atomic<bool> asking_{false};       // one thread at a time asks the driver; the others come back later
  Marker marker_;                         // of the asking thread; no events: none is in flight
  Lock lock_;
  Vector<CUstream> non_blocking_;
  Vector<CUevent> left_behind_;
  Vector<CUevent> spare_events_;
};

}  // namespace cistern::cuda
