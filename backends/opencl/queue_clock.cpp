// See queue_clock.hpp.
#include "backends/opencl/queue_clock.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace cistern::opencl {

Settled QueueClock::known(std::uint64_t number) const {
  if (abandoned()) return Settled::never;
  if (commands_.ended(number)) return Settled::yes;
  return closed() ? Settled::never : Settled::no;
}

Settled QueueClock::settled(std::uint64_t number) {
  if (const Settled answer = known(number); answer != Settled::no) return answer;
  Vector<Marker> markers;
  if (!begin_asking(markers)) return Settled::no;
  ask(markers);
  Settled answer = commands_.ended(number) ? Settled::yes : Settled::no;
  const bool covered = !markers.empty() && markers.back().number >= number;
  if (answer == Settled::no && !covered && !add_marker(markers)) answer = Settled::never;
  end_asking(std::move(markers));
  return answer;
}

// --- Reuse in order

QueueClock::Order QueueClock::keep_in_order(std::uint64_t number) {
  if (abandoned()) return Order::ended;
  if (!in_order()) return Order::unordered;
  Locked hold(lock_);
  if (order_ended_ || closed()) return Order::ended;
  if (foreign_now_ || !commands_.ended(foreign_up_to_)) return Order::foreign;
  in_order_up_to_ = std::max(in_order_up_to_, number);
  return Order::kept;
}

// From here on no buffer is kept in order, so the marker in front of the first of several foreign commands serves them
// all.
void QueueClock::begin_foreign() {
  if (abandoned()) return;
  {
    Locked hold(lock_);
    ++foreign_now_;
  }
  const std::uint64_t number = pending_in_order();
  Vector<Marker> markers;
  if (!number || !wait_to_ask(markers)) return;
  fence(markers, number);
  end_asking(std::move(markers));
}

void QueueClock::end_foreign(std::uint64_t number) {
  if (abandoned()) return;
  Locked hold(lock_);
  foreign_up_to_ = std::max(foreign_up_to_, number);
  if (foreign_now_) --foreign_now_;
}

void QueueClock::end_order() {
  if (abandoned()) return;
  Locked hold(lock_);
  order_ended_ = true;
}

// Threads that ask meanwhile get the answer that no further command has ended yet.
void QueueClock::wait_for_order() {
  const std::uint64_t number = pending_in_order();
  Vector<Marker> markers;
  if (!number || !wait_to_ask(markers)) return;
  fence(markers, number);
  const auto marker =
      std::find_if(markers.begin(), markers.end(), [&](const Marker& one) { return one.number >= number; });
  if (marker != markers.end()) {
    real_.flush(queue_);
    const cl_int error = real_.wait_for_events(1, &marker->event);
    if (error == kSuccess || error == kFailedInWaitList) note_completed_up_to(marker->number);
  }
  ask(markers);
  end_asking(std::move(markers));
}

// 0: nothing.
std::uint64_t QueueClock::pending_in_order() {
  if (abandoned()) return 0;
  Locked hold(lock_);
  return commands_.ended(in_order_up_to_) ? 0 : in_order_up_to_;
}

// If the driver gives no marker, the whole queue is waited for: up to here none of its commands waits for anything but
// the device.
void QueueClock::fence(Vector<Marker>& markers, std::uint64_t number) {
  if (closed()) return;
  ask(markers);
  if (commands_.ended(number) || (!markers.empty() && markers.back().number >= number)) return;
  if (!add_marker(markers) && real_.finish(queue_) == kSuccess) note_completed_up_to(number);
}

bool QueueClock::foreign_pending() {
  if (abandoned()) return false;
  Locked hold(lock_);
  return foreign_now_ || !commands_.ended(foreign_up_to_);
}

// --- Giving up

void QueueClock::close() {
  end_order();
  wait_for_order();
  Vector<Marker> markers;
  if (!wait_to_ask(markers)) return;
  ask(markers);
  release(markers);
  closed_ = true;
  end_asking({});
}

// A marker that stands in front of foreign commands cannot be made again behind them.
void QueueClock::drop_markers() {
  if (!closed() && foreign_pending()) wait_for_order();
  Vector<Marker> markers;
  if (!wait_to_ask(markers)) return;
  release(markers);
  end_asking({});
}

// --- Markers. One thread at a time has them, and asks the driver without the lock.

void QueueClock::release(const Vector<Marker>& markers) {
  for (const Marker& marker : markers) real_.release_event(marker.event);
}

bool QueueClock::begin_asking(Vector<Marker>& markers) {
  Locked hold(lock_);
  if (asking_) return false;
  asking_ = true;
  markers = std::move(markers_);
  markers_.clear();
  return true;
}

// A thread that has the markers makes only calls that don't block, so the wait is short.
bool QueueClock::wait_to_ask(Vector<Marker>& markers) {
  if (abandoned()) return false;
  while (!begin_asking(markers)) sched_yield();
  return true;
}

void QueueClock::end_asking(Vector<Marker>&& markers) {
  Locked hold(lock_);
  markers_ = std::move(markers);
  asking_ = false;
}

void QueueClock::ask(Vector<Marker>& markers) {
  std::size_t ended = 0;
  for (; ended < markers.size(); ++ended) {
    cl_int status = 0;
    calls_.queries.fetch_add(1, std::memory_order_relaxed);
    const cl_int error = real_.event_info(markers[ended].event, kEventExecutionStatus, sizeof status, &status, nullptr);
    // A negative status is a command that ended in an error: it has ended.
    if (error != kSuccess || status > kComplete) break;
    note_completed_up_to(markers[ended].number);
    real_.release_event(markers[ended].event);
  }
  markers.erase(markers.begin(), markers.begin() + static_cast<std::ptrdiff_t>(ended));
}

bool QueueClock::add_marker(Vector<Marker>& markers) {
  if (closed()) return false;
  const std::uint64_t number = commands_.last();
  cl_event event = nullptr;
  calls_.queries.fetch_add(1, std::memory_order_relaxed);
  if (real_.enqueue_marker(queue_, 0, nullptr, &event) != kSuccess || !event) return false;
  markers.push_back({number, event});
  return true;
}

}  // namespace cistern::opencl
