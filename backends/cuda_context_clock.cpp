// See cuda_context_clock.hpp.
#include "backends/cuda_context_clock.hpp"

#include <sched.h>

#include <new>

#include "backends/cuda_context.hpp"

namespace cistern::cuda {
namespace {
const auto kLegacyStream = reinterpret_cast<CUstream>(1);
}

void ContextClock::synchronised(std::uint64_t number) {
  std::uint64_t known = completed_.load(std::memory_order_relaxed);
  while (known < number && !completed_.compare_exchange_weak(known, number)) {
  }
}

Settled ContextClock::settled(CUcontext context, std::uint64_t number, DriverCalls& calls) {
  if (number <= completed_.load()) return Settled::yes;
  Through gate(gate_);
  if (!gate || asking_.exchange(true, std::memory_order_acquire)) return Settled::no;
  const Settled answer = ask(context, number, calls);
  asking_.store(false, std::memory_order_release);
  return answer;
}

Settled ContextClock::ask(CUcontext context, std::uint64_t number, DriverCalls& calls) {
  Relaxed relaxed(real_);
  Entered entered(real_, context);
  if (!entered) return Settled::never;
  for (;;) {
    if (!marker_.events.empty()) {
      if (const Settled answer = poll(calls); answer != Settled::yes) return answer;
      if (number <= completed_.load()) return Settled::yes;
    }
    if (!set_marker(calls)) return Settled::never;
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
  synchronised(marker_.number);
  return Settled::yes;
}

bool ContextClock::set_marker(DriverCalls& calls) {
  // Read before the events are recorded: whatever got a number up to this one was enqueued before them.
  marker_.number = issued_.load();
  Vector<CUstream> streams;
  {
    Locked hold(lock_);
    streams = non_blocking_;
    marker_.events.insert(marker_.events.end(), left_behind_.begin(), left_behind_.end());
    left_behind_.clear();
  }
  if (!record(kLegacyStream, marker_.events, calls)) return false;
  for (CUstream stream : streams)
    if (!record(stream, marker_.events, calls)) return false;
  return true;
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

void ContextClock::stream_ends(CUstream stream, DriverCalls& calls) {
  {
    Locked hold(lock_);
    std::erase(non_blocking_, stream);
  }
  Through gate(gate_);
  if (!gate) return;
  Relaxed relaxed(real_);
  calls.queries.fetch_add(1, std::memory_order_relaxed);
  if (real_.stream_query(stream) != kNotReady) return;
  Vector<CUevent> events;
  if (!record(stream, events, calls)) return;
  Locked hold(lock_);
  left_behind_.push_back(events.front());
}

void ContextClock::forget() {
  while (asking_.exchange(true, std::memory_order_acquire)) sched_yield();
  marker_.events.clear();
  {
    Locked hold(lock_);
    non_blocking_.clear();
    left_behind_.clear();
    spare_events_.clear();
  }
  synchronised(issued_.load());
  asking_.store(false, std::memory_order_release);
}

void ContextClock::forget_in_child() {
  new (&lock_) Lock;
  asking_.store(false);
  marker_.events = {};
  forget();
}

}  // namespace cistern::cuda
