// See order.hpp.
#include "shim/opencl/order.hpp"

#include <sched.h>
#include <time.h>

#include "pool/base/system_call.hpp"
#include "shim/opencl/state.hpp"

namespace cistern::opencl {
namespace {

using Clocks = Vector<std::shared_ptr<QueueClock>>;

// All clocks refuse further buffers first; then the waits cover all that were kept in order.
void end_order(const Clocks& clocks) {
  for (const auto& clock : clocks) clock->end_order();
  for (const auto& clock : clocks) clock->wait_for_order();
}

// Also of a context that the program gave up and got hold of again.
Clocks clocks_of_queues(OpenclState& s, cl_context context) {
  Clocks clocks;
  s.queues.for_each([&](const void*, const Queue& queue) {
    if (!context || queue.context == context) clocks.push_back(queue.clock);
  });
  return clocks;
}

std::optional<Waited> why_context_waits(OpenclState& s, cl_context context) {
  const ContextTraits traits = traits_of(s, context);
  if (!traits.all_queues_seen) return Waited::unknown_calls;
  if (traits.calls_back) return Waited::callbacks;
  return std::nullopt;
}

}  // namespace

std::optional<Waited> why_it_waits(OpenclState& s, const MemoryRecord& released, cl_uint driver_references) {
  if (const auto why = s.order_end.why()) return why;
  if (const auto why = why_context_waits(s, released.context)) return why;
  const Use* last = nullptr;
  for (const Use& use : released.uses) {
    if (last && use.clock->known(use.number) == Settled::yes) continue;
    if (last && last->clock->known(last->number) != Settled::yes) return Waited::several_queues;
    last = &use;
  }
  // A driver holds a reference for each use until it has dropped that command. With more references, others have it
  // too.
  if (!last || driver_references > 1 + released.pending_uses) return Waited::references;
  switch (last->clock->keep_in_order(last->number)) {
    case QueueClock::Order::kept:
      return std::nullopt;
    case QueueClock::Order::unordered:
      return Waited::out_of_order;
    case QueueClock::Order::foreign:
      return Waited::foreign;
    case QueueClock::Order::ended:
      break;
  }
  return Waited::several_queues;
}

void end_order_everywhere(OpenclState& s, Waited why) {
  if (s.order_end.set(why)) end_order(clocks_of_queues(s, nullptr));
}

void end_order(OpenclState& s, cl_context context) { end_order(clocks_of_queues(s, context)); }

// The driver drops its reference a moment after the command's end; on a busy machine its thread has to get its turn
// first. References of this life's commands and children are the program's to see. Other holders keep the buffer for
// longer: they are waited for once.
void wait_for_order(OpenclState& s, cl_mem memory) {
  constexpr int kYields = 50;
  constexpr std::uint64_t kPatience = 200'000'000;
  constexpr timespec kPause{0, 50'000};
  cl_context context = nullptr;
  std::uint64_t references = 0;
  s.memory.with(memory, [&](const MemoryRecord* record) {
    if (!record || !record->recycled || record->others_have_it) return;
    context = record->context;
    references = std::uint64_t{record->references} + record->children + record->uses_now;
  });
  if (!context) return;
  if (!s.order_end.why() && !why_context_waits(s, context))
    for (const auto& clock : clocks_of(context)) clock->wait_for_order();
  const std::uint64_t begun_ns = nanoseconds_since_start();
  for (int looks = 0; s.source.reference_count(memory) > references; ++looks) {
    if (looks < kYields)
      sched_yield();
    else
      system_call(SYS_nanosleep, reinterpret_cast<std::uintptr_t>(&kPause));
    if (nanoseconds_since_start() - begun_ns < kPatience) continue;
    s.memory.with(memory, [](MemoryRecord* record) {
      if (record) record->others_have_it = true;
    });
    return;
  }
}

}  // namespace cistern::opencl
