// Blocking copies between pageable memory of the host and a buffer, through mapped chunks of pinned memory where that
// pays (pool/staging): which copies may go that way, which do, and what is known of either way.
#pragma once
#include <memory>
#include <optional>

#include "backends/opencl/api.hpp"
#include "pool/limits.hpp"
#include "pool/staging/turns.hpp"
#include "shim/staging/staged_way.hpp"

namespace cistern::opencl {

struct OpenclState;

// A read or a write of a buffer.
struct HostCopy {
  bool to_device;
  cl_command_queue queue;
  cl_mem buffer;
  staging::Side host;
  staging::Box box;
  // In the buffer; the pitches as those of the host's side.
  std::size_t offset, row_pitch = 0, slice_pitch = 0;
  bool stageable = true;  // no: of a shape that is passed on
  bool blocking = true, events = false;
};

// A context's ring. Its chunks are mapped and unmapped on a queue of our own, since the program's may end before they
// do; that queue is a reference to the context, so it goes when the program might count those.
class OwnQueue {
 public:
  OwnQueue(const Functions& real, cl_context context, cl_device_id device);
  ~OwnQueue();
  OwnQueue(const OwnQueue&) = delete;
  OwnQueue& operator=(const OwnQueue&) = delete;
  cl_command_queue get() const { return queue_; }
  // What it was given has ended, or takes longer than a while.
  void settle() const;

 private:
  const Functions& real_;
  const cl_command_queue queue_;
};
struct ContextChunks {
  std::shared_ptr<staging::Ring> ring{};
  std::shared_ptr<OwnQueue> queue{};
};

// A command's turn on its queue (pool/staging/turns.hpp). None where copies are never cut in pieces.
class QueueTurn {
 public:
  QueueTurn(OpenclState& s, cl_command_queue queue);
  // Before the pieces of a copy; false: others use the queue.
  bool lengthen() { return turn_ && turn_->lengthen(place_); }
  void shorten() {
    if (turn_) turn_->shorten(place_);
  }

 private:
  const staging::Place place_;
  std::optional<staging::Turn> turn_;
};

class Staging {
 public:
  // Copies one way or the other. `native` makes the program's own call.
  template <class Native>
  cl_int copy(OpenclState& s, const HostCopy& what, QueueTurn& turn, Native native) {
    Plan plan = begin(s, what);
    if (plan.way == staging::Way::staged)
      if (const std::optional<cl_int> answer = stage(s, what, turn, plan)) return *answer;
    const cl_int answer = native();
    if (answer == kSuccess) end(what, plan, staging::Way::native);
    return answer;
  }

  StagedWays& ways() { return ways_; }
  // Where nothing is staged, nobody needs one.
  staging::Turns* turns() { return mode_ == StagingMode::off ? nullptr : &turns_; }
  void set_limits(const PoolLimits& limits) { interval_.set(limits); }

  void before_fork();
  void after_fork();
  void forget_in_child();

 private:
  static constexpr int kDevices = 16;

  struct Plan {
    staging::Way way = staging::Way::native;
    StagedWay* of = nullptr;
    bool trial = false;  // its time is wanted
    std::uint64_t begin_ns = 0;
  };
  struct Place {
    cl_context context = nullptr;
    cl_device_id device_id = nullptr;
    int device = 0;
    bool in_order = false;
  };

  Place place_of(OpenclState& s, cl_command_queue queue);
  int number_of(cl_device_id device);
  bool shares_host_memory(OpenclState& s, int device);
  std::optional<Unstaged> why_not(OpenclState& s, const HostCopy& what, const Place& place);
  Plan begin(OpenclState& s, const HostCopy& what);
  std::optional<Unstaged> begin_pieces(OpenclState& s, const HostCopy& what, QueueTurn& turn);
  std::optional<cl_int> stage(OpenclState& s, const HostCopy& what, QueueTurn& turn, Plan& plan);
  void end(const HostCopy& what, Plan& plan, staging::Way way);

  const StagingMode mode_ = staging_mode();
  StagedWays ways_;
  staging::Turns turns_;
  IntervalTrim interval_;  // of rings
  Lock lock_;
  cl_device_id devices_[kDevices]{};                    // in the order in which they were met
  std::atomic<signed char> shares_memory_[kDevices]{};  // 0: not asked yet; 1: no; 2: yes
};

// Of contexts that no copy went through for so long.
std::size_t trim_rings(OpenclState& s, std::uint64_t unused_for_ns, std::uint64_t now_ns);
// The context's chunks, as far as no copy has them in hand, go back to the driver. Returns their bytes.
std::size_t give_back_chunks(OpenclState& s, cl_context context);
std::size_t give_back_chunks(OpenclState& s, cl_context context, const ContextChunks& chunks);

}  // namespace cistern::opencl
