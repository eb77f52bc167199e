// Events: a point in a stream's work that others can wait for, in this process or in another.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/marker.hpp"

namespace simcuda {

struct GraphNode;

// Lies in memory that the exporting and the importing processes share.
struct InterprocessEvent {
  std::atomic<uint64_t> recorded;
  std::atomic<uint64_t> completed;
};

// What the last record of an event means: reached when the work before it is done. Never recorded: reached.
struct EventPoint {
  MarkerPointer marker;
  std::shared_ptr<InterprocessEvent> shared;
  uint64_t target = 0;                                // of shared->completed
  std::shared_ptr<std::atomic<int64_t>> nanoseconds;  // when it was reached

  bool reached() const;
  void wait() const;
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  bool recorded = false;
  EventPoint point;
  std::shared_ptr<InterprocessEvent> shared;
  int shared_file = -1;
  // When it was last recorded in a capture: that capture's id, and the nodes that the event stands for.
  uint64_t capture_id = 0;
  std::vector<GraphNode*> capture_nodes;
};

std::shared_ptr<Event> find_event(Locked&, CUevent handle);
CUevent publish_event(Locked&, std::shared_ptr<Event> event);
EventPoint current_point(const Event& event);
void drop_events_of(Locked&, Context& context);

}  // namespace simcuda
