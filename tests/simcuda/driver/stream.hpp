// Streams: queues of operations, each run in order by a worker thread of its own, and what orders them among each
// other.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/graph.hpp"
#include "tests/simcuda/driver/marker.hpp"

namespace simcuda {

enum class StreamKind { kLegacy, kPerThread, kCreated };

struct Operation {
  std::function<void()> work;
  std::vector<MarkerPointer> after;  // not done when it was queued
  MarkerPointer done;
  bool bookkeeping;  // runs in a context with a sticky error too
};

struct Stream {
  Context* context = nullptr;
  StreamKind kind = StreamKind::kCreated;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  uint64_t thread = 0;  // of a per-thread stream

  // Guarded by the driver's lock.
  MarkerPointer last;  // of the operation that was queued last
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> capture_tail;

  // The queue has a lock of its own: workers never take the driver's to get their next operation.
  std::mutex queue_lock;
  std::condition_variable ready;
  std::deque<Operation> queue;
  bool has_worker = false;
  bool closing = false;

  bool blocking() const { return kind != StreamKind::kLegacy && !(flags & CU_STREAM_NON_BLOCKING); }
};

using StreamPointer = std::shared_ptr<Stream>;

// The stream that a handle means in this call: 0, 1 and 2 are the current context's default streams. Null with an
// error.
StreamPointer find_stream(Locked&, CUstream handle, CUresult& result);

// [documented] 709 for a stream of a green context that was destroyed: later toolkits say 917. For any other unknown
// handle it is 400.
CUresult error_of_unknown_stream(Locked&, CUstream handle);

// What the stream has still to do, ordering with the context's other streams counted.
std::vector<MarkerPointer> unfinished_before(Locked&, const Stream& stream);

enum class Wait { kNo, kYes };

// Queues the task, or adds it to the graph if the stream is being captured. With Wait::kYes it returns after the task,
// which a capture does not allow; the lock is released meanwhile.
CUresult enqueue(Locked& lock, const StreamPointer& stream, Task task, Wait wait = Wait::kNo);

// While the process ends, streams do nothing any more: what they would work on may be gone.
void stop_at_teardown();

// Past all checks: straight to the worker. What is bookkeeping of the simulator's own runs after a sticky error too.
MarkerPointer queue_operation(Locked&, const StreamPointer& stream, std::function<void()> work,
                              std::vector<MarkerPointer> after = {}, bool bookkeeping = false);

void wait_for(Locked& lock, const std::vector<MarkerPointer>& markers);
// Everything that was queued in the context until now.
std::vector<MarkerPointer> unfinished_in(Locked&, const Context& context);

// For cuStreamCreate and its relatives: the stream gets a handle. [documented] A priority outside the range is clamped.
CUstream create_stream(Locked&, Context& context, unsigned flags, int priority);
constexpr int kGreatestPriority = -5;

StreamPointer make_stream(Locked&, Context& context, StreamKind kind, unsigned flags, int priority);
// The worker ends when the queue is empty.
void close_stream(Locked&, const StreamPointer& stream);
// Closes it too; the context still waits for what it has queued.
void retire_stream(Locked&, const StreamPointer& stream);

}  // namespace simcuda
