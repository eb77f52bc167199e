// See queue_clock.hpp.
#include "backends/opencl/queue_clock.hpp"

#include <sched.h>

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

void QueueClock::close() {
  Vector<Marker> markers;
  if (!wait_to_ask(markers)) return;
  ask(markers);
  release(markers);
  closed_ = true;
  end_asking({});
}

void QueueClock::drop_markers() {
  Vector<Marker> markers;
  if (!wait_to_ask(markers)) return;
  release(markers);
  end_asking({});
}

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

// Whoever asks makes only calls that don't block, so this is short.
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
