// Buffers that are given again while commands of their former life are pending: only where the one queue of their
// context orders the next life's commands behind those, and only while nothing in that queue waits for anything but
// the device (backends/opencl/queue_clock.hpp). Where that is not certain a buffer waits, for a reason that is counted.
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

// Of a buffer that the program has released, with commands pending: kept in order, or why not.
std::optional<Waited> why_it_waits(OpenclState& s, const MemoryRecord& released, cl_uint driver_references);

// Before anything that our order cannot foresee: from here on nothing is kept in order, and what was has ended.
void end_order_everywhere(OpenclState& s, Waited why);
// The same in one context: it has a second queue, which the program does not have in hand yet.
void end_order(OpenclState& s, cl_context context);
// Commands of former lives hold references to a buffer, which the program must not see.
void settle_order(OpenclState& s, cl_mem memory);

}  // namespace cistern::opencl
