// The clock of one context: whether all the work that was in its streams at some moment has ended, without waiting.
//
//   n = now()       a chunk is given back: whatever uses it was enqueued before
//   settled(n)      known from a synchronisation, else asked of a marker: one event on the legacy stream, which comes
//                   after all blocking streams and every thread's own default stream, and one on each non-blocking
//                   stream. Only one marker is under way at a time, and the next one serves all who asked meanwhile.
//
// A stream that is destroyed with work pending leaves an event behind, which the next marker includes. Where it can't,
// because no call may be made or one fails, only a synchronisation of the whole context helps; until then the answer
// is `never`.
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
  ContextClock(const Functions& real, Gate& gate) : real_(real), gate_(gate) {}
  ContextClock(const ContextClock&) = delete;
  ContextClock& operator=(const ContextClock&) = delete;

  std::uint64_t now() { return work_.next(); }
  // The last number given out. Read before a wait for the whole context: all up to it have ended then.
  std::uint64_t last() const { return work_.last(); }

  // Whether it is known without asking.
  bool known(std::uint64_t number) const { return work_.ended(number); }

  // Counts its driver calls in `calls`.
  Settled settled(CUcontext context, std::uint64_t number, DriverCalls& calls);

  // Everything up to `number` has ended: somebody waited for the whole context after reading last().
  void synchronised(std::uint64_t number);

  void stream_created(CUstream stream, bool non_blocking);
  // Before the real destroy, with the stream's context current.
  void stream_ends(CUstream stream, DriverCalls& calls);

  // Work of a stream that nobody saw begin: the next marker includes what is enqueued there by now.
  void note_work(CUstream stream, DriverCalls& calls);

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
  bool leave_behind(CUstream stream, DriverCalls& calls);
  void reuse_left_behind(DriverCalls& calls);
  void begin_asking();
  void end_asking();

  const Functions& real_;
  Gate& gate_;
  WorkNumbers work_;
  std::atomic<std::uint64_t> waited_{0};  // up to where the context was synchronised
  std::atomic<std::uint64_t> lost_{0};    // when a stream went whose work no marker can tell of
  std::atomic<bool> asking_{false};       // one thread at a time asks the driver; the others come back later
  Marker marker_;                         // of the asking thread; no events: none is under way
  Lock lock_;
  Vector<CUstream> non_blocking_;
  Vector<CUevent> left_behind_;
  Vector<CUevent> spare_events_;
};

}  // namespace cistern::cuda
