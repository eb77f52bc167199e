// Blocking copies between pageable memory of the host and a buffer, through mapped chunks of pinned memory where that
// pays (pool/staging): which copies may go that way, which do, and what is known of either way.
#pragma once
#include <memory>
#include <optional>

#include "backends/opencl/api.hpp"
#include "pool/staging/turns.hpp"
#include "shim/staging/engine.hpp"

namespace cistern::opencl {

struct OpenclState;
// Of contexts that no copy went through for so long.
std::size_t trim_rings(OpenclState& s, std::uint64_t unused_for_ns, std::uint64_t now_ns);

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

  bool has_parts() const { return box.rows * box.slices == 1; }
  HostCopy part(std::size_t first_byte, std::size_t bytes) const {
    HostCopy part = *this;
    part.host.base += first_byte;
    part.offset += first_byte;
    part.box = {bytes};
    return part;
  }
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
  void wait_a_while() const;

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
  // No batch of copies is one here.
  bool is_long() const { return false; }
  // Before the pieces of a copy; false: others use the queue.
  bool lengthen() { return turn_ && turn_->lengthen(place_); }
  void shorten() {
    if (turn_) turn_->shorten(place_);
  }
  staging::Turn* turn() { return turn_ ? &*turn_ : nullptr; }

 private:
  const staging::StreamKey place_;
  std::optional<staging::Turn> turn_;
};

struct StagingTypes {
  using State = OpenclState;
  using Copy = HostCopy;
  using Turn = QueueTurn;
  using Answer = cl_int;
  struct CopyContext {
    cl_context context = nullptr;
    cl_device_id device_id = nullptr;
    int device = 0;
    bool in_order = false;
  };
  // Whether the copy's time is wanted.
  struct Trial {
    bool is_one = false;
    explicit operator bool() const { return is_one; }
  };
  static constexpr cl_int kSuccess = opencl::kSuccess;
};

class Staging : public StagingEngine<Staging, StagingTypes> {
 private:
  friend class StagingEngine<Staging, StagingTypes>;
  static constexpr int kDevices = 16;

  // --- For the engine
  CopyContext context_of_copy(OpenclState& s, const HostCopy& what);
  std::optional<Unstaged> why_not(OpenclState& s, const HostCopy& what, const CopyContext& copy_context);
  bool reads_host(OpenclState& s, const CopyContext& copy_context);
  void take_in_trials(OpenclState&, const CopyContext&) {}
  Trial begin_trial(OpenclState& s, const HostCopy& what, const CopyContext& copy_context);
  void end_trial(OpenclState& s, const HostCopy& what, const Plan& plan, cl_int answer, const Tried& tried);
  void drop_trial(OpenclState&, const CopyContext&, const Trial&) {}
  bool copy_part(OpenclState& s, const HostCopy& part, const CopyContext& copy_context);
  std::optional<Unstaged> wait_for_earlier_work(OpenclState& s, const HostCopy& what);
  bool is_idle(OpenclState& s, const HostCopy& what);
  Passage pass_ring(OpenclState& s, const HostCopy& what, const CopyContext& copy_context, ReadAhead::Copy& ahead,
                    QueueTurn& turn);

  int number_of(cl_device_id device);

  cl_device_id devices_[kDevices]{};                    // in the order in which they were met
  std::atomic<signed char> shares_memory_[kDevices]{};  // 0: not asked yet; 1: no; 2: yes
};

// The context's chunks, as far as no copy has them in hand, go back to the driver. Returns their bytes.
std::size_t give_back_chunks(OpenclState& s, cl_context context);
std::size_t give_back_chunks(OpenclState& s, cl_context context, const ContextChunks& chunks);

}  // namespace cistern::opencl
