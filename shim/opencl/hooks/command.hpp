// Runs a command and notes which queue uses which memory, up to which command.
#pragma once
#include <span>
#include <type_traits>
#include <utility>

#include "shim/opencl/hooks/room.hpp"

namespace cistern::opencl {

// A sub-buffer's or image's use is its parent's use. Without a clock: a queue that we never saw.
void note_use(OpenclState& s, const void* memory, const std::shared_ptr<QueueClock>& clock, std::uint64_t number);

// Runs a command through `enqueue` and notes its event and its uses. A blocking command has ended when it returns,
// and on an in-order queue so has everything before it. An `enqueue` that may cut in pieces takes the turn.
template <class Handle, class Enqueue>
cl_int command(cl_command_queue queue, bool blocking, const cl_event* event, std::span<Handle> memory,
               Enqueue enqueue) {
  OpenclState& s = state();
  Transfers::last_was_no_copy();
  QueueTurn turn(s, queue);
  const bool matters = blocking || event || !memory.empty();
  const std::shared_ptr<QueueClock> clock = matters ? clock_of(s, queue) : nullptr;
  const std::uint64_t before = clock ? clock->enqueued() : 0;
  const cl_int error = enqueue_with_room(s, [&] {
    if constexpr (std::is_invocable_v<Enqueue, QueueTurn&>)
      return enqueue(turn);
    else
      return enqueue();
  });
  if (error != kSuccess) return error;
  std::uint64_t number = before;
  if (clock && blocking && clock->in_order()) clock->note_completed_up_to(before);
  if (!blocking && !memory.empty()) {
    number = clock ? clock->note_command() : 0;
    for (const void* used : memory) note_use(s, used, clock, number);
  }
  // Numbers are given after the enqueue: only when none was given meanwhile is this command the next after `before`.
  note_event(event, {clock, number == before + 1 ? number : before});
  return error;
}

}  // namespace cistern::opencl
