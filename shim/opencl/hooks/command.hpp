// Runs a command and notes which queue uses which memory, up to which command.
#pragma once
#include <span>
#include <type_traits>
#include <utility>

#include "shim/opencl/hooks/passed_with_room.hpp"

namespace cistern::opencl {

// A sub-buffer's or image's use is its parent's use. Without a clock: a queue that we never saw.
void note_use(OpenclState& s, const void* memory, const std::shared_ptr<QueueClock>& clock, std::uint64_t number);

// Of a command that has ended.
void note_first_use(OpenclState& s, const void* memory);

// What a command waits for, besides the commands before it.
struct WaitList {
  cl_uint count = 0;
  const cl_event* events = nullptr;
  bool others = false;  // too: something that no event tells
};

// A command that may wait for more than what is in its own queue before it (backends/opencl/queue_clock.hpp): from
// before it is enqueued until it is.
class ForeignCommand {
 public:
  ForeignCommand(OpenclState& s, const std::shared_ptr<QueueClock>& clock, const WaitList& wait);
  ~ForeignCommand() {
    if (clock_) clock_->end_foreign(number_);
  }
  ForeignCommand(const ForeignCommand&) = delete;
  ForeignCommand& operator=(const ForeignCommand&) = delete;
  explicit operator bool() const { return clock_ != nullptr; }
  // It is in the queue, and has not ended.
  void set_number(std::uint64_t number) { number_ = number; }

 private:
  QueueClock* clock_ = nullptr;
  std::uint64_t number_ = 0;
};

// Runs a command through `enqueue` and notes its event and its uses. A blocking command has ended when it returns,
// and on an in-order queue so has everything before it. An `enqueue` that may cut in pieces takes the turn.
template <class Handle, class Enqueue>
cl_int command(cl_command_queue queue, bool blocking, const WaitList& wait, const cl_event* event,
               std::span<Handle> memory, Enqueue enqueue) {
  OpenclState& s = state();
  Transfers::last_was_no_copy();
  QueueTurn turn(s, queue);
  const bool matters = blocking || event || !memory.empty() || wait.count || wait.others;
  const std::shared_ptr<QueueClock> clock = matters ? clock_of(s, queue) : nullptr;
  const std::uint64_t before = clock ? clock->enqueued() : 0;
  if (matters && queue && !clock) [[unlikely]]
    end_order_everywhere(s, Waited::unknown_calls);
  ForeignCommand foreign(s, clock, wait);
  const cl_int error = enqueue_with_room(s, [&] {
    if constexpr (std::is_invocable_v<Enqueue, QueueTurn&>)
      return enqueue(turn);
    else
      return enqueue();
  });
  if (error != kSuccess) return error;
  std::uint64_t number = before;
  if (clock && blocking && clock->in_order()) clock->note_completed_up_to(before);
  if (!blocking && (!memory.empty() || foreign)) {
    number = clock ? clock->note_command() : 0;
    foreign.set_number(number);
    for (const void* used : memory) note_use(s, used, clock, number);
  }
  // Numbers are given after the enqueue: only when none was given meanwhile is this command the next after `before`.
  if (blocking && s.first_uses.bytes())
    for (const void* used : memory) note_first_use(s, used);
  note_event(event, {clock, number == before + 1 ? number : before});
  return error;
}

}  // namespace cistern::opencl
