// See context_clock.hpp.
#include "backends/cuda/context_clock.hpp"

#include <sched.h>

#include <new>

#include "backends/cuda/context.hpp"

namespace cistern::cuda {
namespace {
constexpr int kTriesMax = 100;
}  // namespace

void ContextClock::synchronised(std::uint64_t number) {
  raise(waited_, number);
  work_.ended_up_to(number);
}

Settled ContextClock::settled(CUcontext context, std::uint64_t number, DriverCalls& calls) {
  if (work_.ended(number)) return Settled::yes;
  Through gate(gate_);
  if (!gate) return Settled::no;
  // The thread that asks now very likely gets the answer for this one too.
  for (int tries = 0; asking_.exchange(true, std::memory_order_acquire); ++tries) {
    if (tries == kTriesMax) return Settled::no;
    sched_yield();
    if (work_.ended(number)) return Settled::yes;
  }
  const Settled answer = ask(context, number, calls);
  end_asking();
  return answer;
}

Settled ContextClock::ask(CUcontext context, std::uint64_t number, DriverCalls& calls) {
  RelaxedCapture relaxed(real_);
  Entered entered(real_, context);
  if (!entered) return Settled::never;
  for (;;) {
    if (!marker_.events.empty()) {
      if (const Settled answer = poll(calls); answer != Settled::yes) return answer;
      if (work_.ended(number)) return Settled::yes;
    }
    if (lost_.load() > waited_.load() || !set_marker(calls)) return Settled::never;
  }
}

// Asks the events that have not ended yet.
Settled ContextClock::poll(DriverCalls& calls) {
  while (!marker_.events.empty()) {
    calls.queries.fetch_add(1, std::memory_order_relaxed);
    const CUresult result = real_.event_query(marker_.events.back());
    if (result == kNotReady) return Settled::no;
    if (result != kSuccess) return Settled::never;
    Locked hold(lock_);
    spare_events_.push_back(marker_.events.back());
    marker_.events.pop_back();
  }
  work_.ended_up_to(marker_.number);
  return Settled::yes;
}

bool ContextClock::set_marker(DriverCalls& calls) {
  // Read before the events are recorded: whatever got a number up to this one was enqueued before them.
  marker_.number = work_.last();
  Vector<CUstream> streams;
  {
    Locked hold(lock_);
    streams = non_blocking_;
    marker_.events.insert(marker_.events.end(), left_behind_.begin(), left_behind_.end());
    left_behind_.clear();
  }
  bool all = record(legacy_stream(), marker_.events, calls);
  for (CUstream stream : streams) all = all && record(stream, marker_.events, calls);
  // An incomplete marker says nothing about the streams without an event: its events are waited for, and count no work.
  if (!all) marker_.number = 0;
  return all;
}

bool ContextClock::record(CUstream stream, Vector<CUevent>& events, DriverCalls& calls) {
  constexpr unsigned kDisableTiming = 2;
  CUevent event = nullptr;
  {
    Locked hold(lock_);
    if (!spare_events_.empty()) event = spare_events_.back(), spare_events_.pop_back();
  }
  calls.queries.fetch_add(1, std::memory_order_relaxed);
  if (!event && real_.event_create(&event, kDisableTiming) != kSuccess) return false;
  if (real_.event_record(event, stream) == kSuccess) {
    events.push_back(event);
    return true;
  }
  Locked hold(lock_);
  spare_events_.push_back(event);
  return false;
}

void ContextClock::stream_created(CUstream stream, bool non_blocking) {
  if (!non_blocking) return;
  Locked hold(lock_);
  non_blocking_.push_back(stream);
}

void ContextClock::stream_ends(CUcontext context, CUstream stream, DriverCalls& calls) {
  // Alone: a marker that is set meanwhile would miss the stream's work, or be recorded on a stream that is gone.
  begin_asking();
  {
    Locked hold(lock_);
    std::erase(non_blocking_, stream);
  }
  if (!leave_behind(context, stream, calls)) lost_.store(now());
  end_asking();
}

void ContextClock::note_work(CUcontext context, CUstream stream, DriverCalls& calls) {
  begin_asking();
  if (!leave_behind(context, stream, calls)) lost_.store(now());
  end_asking();
}

// False: whether the stream's work has ended can't be told.
bool ContextClock::leave_behind(CUcontext context, CUstream stream, DriverCalls& calls) {
  Through gate(gate_);
  if (!gate) return false;
  const Entered entered(real_, context);
  if (!entered) return false;
  // A question would end the capture of a stream that captures: in a program that links the library none is seen.
  if (int status = kCaptureStatusNone; real_.stream_is_capturing) {
    calls.queries.fetch_add(1, std::memory_order_relaxed);
    if (real_.stream_is_capturing(stream, &status) != kSuccess || status != kCaptureStatusNone) return false;
  }
  RelaxedCapture relaxed(real_);
  calls.queries.fetch_add(1, std::memory_order_relaxed);
  if (const CUresult answer = real_.stream_query(stream); answer != kNotReady) return answer == kSuccess;
  reuse_left_behind(calls);
  Vector<CUevent> events;
  if (!record(stream, events, calls)) return false;
  Locked hold(lock_);
  left_behind_.push_back(events.front());
  return true;
}

// In strict order there may be no question for a long time, while streams come and go: events that have passed are
// reused.
void ContextClock::reuse_left_behind(DriverCalls& calls) {
  for (;;) {
    CUevent oldest = nullptr;
    {
      Locked hold(lock_);
      if (left_behind_.empty()) return;
      oldest = left_behind_.front();
    }
    calls.queries.fetch_add(1, std::memory_order_relaxed);
    if (real_.event_query(oldest) != kSuccess) return;
    Locked hold(lock_);
    left_behind_.erase(left_behind_.begin());
    spare_events_.push_back(oldest);
  }
}

void ContextClock::begin_asking() {
  while (asking_.exchange(true, std::memory_order_acquire)) sched_yield();
}
void ContextClock::end_asking() { asking_.store(false, std::memory_order_release); }

void ContextClock::forget() {
  begin_asking();
  marker_.events.clear();
  {
    Locked hold(lock_);
    non_blocking_.clear();
    left_behind_.clear();
    spare_events_.clear();
  }
  synchronised(now());
  end_asking();
}

// Whatever another thread was in the middle of changing is left where it is.
void ContextClock::forget_in_child() {
  new (&lock_) Lock;
  for (Vector<CUevent>* events : {&marker_.events, &left_behind_, &spare_events_}) new (events) Vector<CUevent>;
  new (&non_blocking_) Vector<CUstream>;
  end_asking();
  forget();
}

}  // namespace cistern::cuda
