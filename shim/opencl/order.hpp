// Reuse in order: the pool may give a buffer again while commands of its former life are pending. That holds only if
// the one queue of its context orders the commands of the next life behind those, and only while nothing in that queue
// waits for anything but the device (backends/opencl/queue_clock.hpp). Otherwise the buffer waits, for a reason that is
// counted.
#pragma once
#include <atomic>

#include "backends/opencl/api.hpp"
#include "stats/counters.hpp"

namespace cistern::opencl {

struct OpenclState;
struct MemoryRecord;

// Why, from some moment on, no buffer of the process is kept in order. The first reason stays.
class OrderEnd {
 public:
  std::optional<Waited> why() const {
    const int why = why_.load(std::memory_order_acquire);
    return why == kNone ? std::nullopt : std::optional<Waited>(static_cast<Waited>(why));
  }
  // True for the first.
  bool set(Waited why) {
    int none = kNone;
    return why_.compare_exchange_strong(none, static_cast<int>(why));
  }

 private:
  static constexpr int kNone = -1;
  std::atomic<int> why_{kNone};
};

// Decides about a buffer that the program has released, with commands pending. Nothing: its queue's clock has noted
// that the buffer is kept in order. Else the reason why it waits.
std::optional<Waited> why_it_waits(OpenclState& s, const MemoryRecord& released, cl_uint driver_references);

// To be called before a call whose order Cistern cannot know. From here on no buffer is kept in order, and the commands
// of those that were have ended.
void end_order_everywhere(OpenclState& s, Waited why);
// The same in one context: it has a second queue, which the program does not have in hand yet.
void end_order(OpenclState& s, cl_context context);
// Commands of former lives hold references to a buffer, which the program must not see.
void wait_for_order(OpenclState& s, cl_mem memory);

}  // namespace cistern::opencl
