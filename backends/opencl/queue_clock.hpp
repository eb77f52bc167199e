// The clock of one command queue: how many commands were enqueued, and up to which one all are known to have ended.
//
// It answers "has command n ended?" without ever waiting. It knows from the program's own waits: clFinish, and on
// in-order queues blocking commands and events. Else the first question enqueues a marker, and later questions ask that
// marker. One marker serves all questions about commands before it, and a program that frees nothing in flight never
// causes one. When the program gives its queue up, the clock drops its references: the queue ends as it would have.
//
// It also says whether a buffer may be given again before its commands have ended, because the queue orders those of
// its next life behind them, and keeps what that promises:
//   keep_in_order(number)  -> yes, for as long as this queue's commands are all that can touch the buffer
//   wait_for_order()       -> something else can from here on (another queue): all that was kept so has ended then
// wait_for_order waits for the device's own work and nothing else. A foreign command may wait for the program or for
// another queue. While one is in the queue, no buffer is kept in order, and a marker stands in front of it
// (begin_foreign).
#pragma once
#include <atomic>

#include "backends/opencl/api.hpp"
#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/work_numbers.hpp"
#include "pool/source.hpp"

namespace cistern::opencl {

class QueueClock {
 public:
  QueueClock(const Functions& real, DriverCalls& calls, cl_command_queue queue, bool in_order)
      : real_(real), calls_(calls), queue_(queue), in_order_(in_order) {}
  ~QueueClock() { drop_markers(); }
  QueueClock(const QueueClock&) = delete;
  QueueClock& operator=(const QueueClock&) = delete;

  // To be called after the real enqueue returned: a number that is given out belongs to a command that is in the queue,
  // so a marker enqueued now comes after it.
  std::uint64_t note_command() { return commands_.next(); }
  std::uint64_t enqueued() const { return commands_.last(); }
  void note_completed_up_to(std::uint64_t number) { commands_.ended_up_to(number); }
  bool in_order() const { return in_order_.load(); }
  void set_in_order(bool in_order) { in_order_ = in_order; }

  // Never blocks. May enqueue a marker.
  Settled settled(std::uint64_t number);
  // The same without asking the driver.
  Settled known(std::uint64_t number) const;

  enum class Order { kept, unordered, foreign, ended };
  // Whether buffers may be given again whose commands, up to this one, are all in this queue.
  Order keep_in_order(std::uint64_t number);
  // Around foreign commands, which may wait for more than the commands before them, and around maps. `number`: the last
  // one's.
  void begin_foreign();
  void end_foreign(std::uint64_t number);
  // Nothing more is kept in order.
  void end_order();
  // Waits until the commands of all that was kept in order have ended, however they ended.
  void wait_for_order();

  // The program gives the queue up: what is not known to have ended by now never will be. To be called before the real
  // release.
  void close();
  bool closed() const { return closed_.load(); }
  // Gives up the markers (they hold references to the queue, and through it to the context).
  void drop_markers();

  // In a forked child: every clock there is belongs to a driver whose threads are gone. Its markers are abandoned, and
  // what waits for it never settles.
  static void abandon_all_in_child() { ++forks_; }

 private:
  struct Marker {
    std::uint64_t number;  // every command up to this one comes before the marker
    cl_event event;
  };

  // Markers are taken out, asked about and put back by one thread at a time; others come back later.
  bool begin_asking(Vector<Marker>& markers);
  // False: abandoned.
  bool wait_to_ask(Vector<Marker>& markers);
  void end_asking(Vector<Marker>&& markers);
  void ask(Vector<Marker>& markers);
  void release(const Vector<Marker>& markers);
  bool add_marker(Vector<Marker>& markers);
  // Everything up to this command ends, at the latest, with a marker that is in the queue now; or has ended.
  void fence(Vector<Marker>& markers, std::uint64_t number);
  std::uint64_t pending_in_order();
  bool foreign_pending();

  bool abandoned() const { return made_after_forks_ != forks_; }

  static inline constinit unsigned forks_ = 0;  // changes only while a child has one thread

  const unsigned made_after_forks_ = forks_;
  const Functions& real_;
  DriverCalls& calls_;
  const cl_command_queue queue_;
  std::atomic<bool> in_order_;
  WorkNumbers commands_;
  Lock lock_;
  bool asking_ = false;
  bool order_ended_ = false;
  std::uint64_t in_order_up_to_ = 0;  // the last command of any buffer that was kept in order
  unsigned foreign_now_ = 0;
  std::uint64_t foreign_up_to_ = 0;
  std::atomic<bool> closed_{false};
  Vector<Marker> markers_;  // ascending
};

}  // namespace cistern::opencl
