// See staging.hpp.
#include "shim/opencl/staging.hpp"

#include <time.h>

#include <algorithm>

#include "backends/opencl/staging_chunks.hpp"
#include "pool/base/system_call.hpp"
#include "shim/opencl/missing.hpp"
#include "shim/opencl/state.hpp"
#include "shim/process/process.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/staging/host_lane.hpp"
#include "shim/staging/touchable.hpp"

namespace cistern::opencl {
namespace {

// --- One copy's way through the ring

class OpenclLane final : public HostLane {
 public:
  OpenclLane(const HostCopy& what, StagingChunks& chunks, ReadAhead::Copy& ahead, staging::Turn* turn)
      : HostLane(what.to_device, ahead, turn), what_(what), chunks_(chunks) {}

  // Nothing was done: the program's own call can do it all.
  bool untouched() const { return untouched_; }

  // The event waits for its chunk, which gets it at once. Without a flush nobody begins.
  staging::Error enqueue(const staging::Piece& piece, char* chunk) override {
    const staging::Side packed{chunk, piece.box.row_bytes, piece.box.row_bytes * piece.box.rows};
    const cl_int error = copy_piece(piece, packed, false, &event_);
    if (error != kSuccess) return staging::Error{error};
    next().clFlush.own(what_.queue);
    enqueued_ = true;
    return staging::Error::none;
  }
  staging::Error mark(staging::Chunk& chunk) override {
    chunks_.set_mark(chunk, event_);
    return staging::Error::none;
  }
  staging::Error pass_on(const staging::Piece& piece) override {
    untouched_ = !enqueued_ && piece.box.bytes() == what_.box.bytes();
    return untouched_ ? staging::Error::none : staging::Error{copy_piece(piece, piece.of(what_.host), true, nullptr)};
  }
  bool interrupted() override { return phase() != Phase::running; }

 private:
  cl_int copy_piece(const staging::Piece& piece, const staging::Side& host, bool blocking, cl_event* event) const {
    const std::size_t at = what_.offset + piece.slice * what_.slice_pitch + piece.row * what_.row_pitch + piece.byte;
    const Table& real = next();
    if (piece.box.rows * piece.box.slices == 1)
      return what_.to_device ? real.clEnqueueWriteBuffer.own(what_.queue, what_.buffer, blocking, at,
                                                             piece.box.row_bytes, host.base, 0, nullptr, event)
                             : real.clEnqueueReadBuffer.own(what_.queue, what_.buffer, blocking, at,
                                                            piece.box.row_bytes, host.base, 0, nullptr, event);
    // The offset as an origin, which the pitches have to fit.
    const std::size_t slice = what_.slice_pitch, row = what_.row_pitch;
    const std::size_t origin[3] = {at % slice % row, at % slice / row, at / slice}, none[3] = {},
                      region[3] = {piece.box.row_bytes, piece.box.rows, piece.box.slices};
    return what_.to_device
               ? real.clEnqueueWriteBufferRect.own(what_.queue, what_.buffer, blocking, origin, none, region, row,
                                                   slice, host.row_pitch, host.slice_pitch, host.base, 0, nullptr,
                                                   event)
               : real.clEnqueueReadBufferRect.own(what_.queue, what_.buffer, blocking, origin, none, region, row, slice,
                                                  host.row_pitch, host.slice_pitch, host.base, 0, nullptr, event);
  }

  const HostCopy& what_;
  StagingChunks& chunks_;
  cl_event event_ = nullptr;
  bool enqueued_ = false, untouched_ = false;
};

// The driver refuses the whole of what does not fit; in pieces it would refuse the last ones only.
bool fits(OpenclState& s, const HostCopy& what) {
  const std::size_t bytes = s.source.bytes(what.buffer);
  const staging::Side in_buffer{nullptr, what.row_pitch, what.slice_pitch};
  const std::size_t span = staging::span_bytes(in_buffer, what.box);
  return what.offset <= bytes && span <= bytes - what.offset;
}

// The program gave the context up while a copy had chunks in hand: nobody else gives them back.
void give_back_unowned(OpenclState& s, cl_context context, const ContextChunks& own, StagingChunks& chunks) {
  const bool owned =
      s.contexts.with(context, [&](const ContextRecord* record) { return record && record->chunks.ring == own.ring; });
  if (owned) return;
  own.ring->trim(chunks);
  own.queue->wait_a_while();
}

// Made where they are not there; nothing where the context is not the program's any more.
ContextChunks chunks_of(OpenclState& s, cl_context context, cl_device_id device) {
  ContextChunks found;
  bool there = false;
  const auto look = [&](const ContextRecord* record) {
    there = record && !record->inherited && record->references;
    if (there) found = record->chunks;
  };
  s.contexts.with(context, look);
  if (!there || (found.ring && found.queue)) return found;
  if (!found.ring) found.ring = std::allocate_shared<staging::Ring>(InternalAllocator<staging::Ring>());
  found.queue = std::allocate_shared<OwnQueue>(InternalAllocator<OwnQueue>(), s.functions, context, device);
  if (!found.queue->get()) return {};
  // Another thread may have been faster: then what was made here ends, but not under the lock.
  const ContextChunks made = found;
  s.contexts.with(context, [&](ContextRecord* record) {
    if (!record) return;
    if (!record->chunks.ring) record->chunks.ring = made.ring;
    if (!record->chunks.queue) record->chunks.queue = made.queue;
    found = record->chunks;
  });
  return found;
}

// For a hundredth of a second, in steps.
constexpr int kPatience = 200;
void sleep_a_little() {
  constexpr timespec kTime{0, 50'000};
  system_call(SYS_nanosleep, reinterpret_cast<std::uintptr_t>(&kTime));
}

// Whether all that is in the queue has ended, or does within a moment.
bool has_ended(const Functions& real, cl_command_queue queue) {
  cl_event event = nullptr;
  if (real.enqueue_marker(queue, 0, nullptr, &event) != kSuccess) return false;
  next().clFlush.own(queue);
  cl_int status = kComplete + 1;
  for (int i = 0; status > kComplete && i < kPatience; ++i) {
    if (i) sleep_a_little();
    if (real.event_info(event, kEventExecutionStatus, sizeof status, &status, nullptr) != kSuccess) break;
  }
  real.release_event(event);
  return status <= kComplete;
}

}  // namespace

// --- Which way

Staging::CopyContext Staging::context_of_copy(OpenclState& s, const HostCopy& what) {
  CopyContext copy_context;
  s.queues.with(what.queue, [&](const Queue* record) {
    if (!record || record->inherited) return;
    copy_context.context = record->context;
    copy_context.in_order = record->clock->in_order();
    copy_context.device_id = record->device;
  });
  copy_context.device = number_of(copy_context.device_id);
  return copy_context;
}

int Staging::number_of(cl_device_id device) {
  Locked hold(lock());
  for (int number = 0; number < kDevices; ++number) {
    if (!devices_[number]) devices_[number] = device;
    if (devices_[number] == device) return number;
  }
  return kDevices - 1;
}

// What there is to gain on such a device nobody knows; with "on" it is tried.
bool Staging::reads_host(OpenclState& s, const CopyContext& copy_context) {
  if (mode() != StagingMode::automatic) return false;
  const int device = copy_context.device;
  std::atomic<signed char>& known = shares_memory_[device];
  if (!known.load(std::memory_order_relaxed))
    known.store(s.devices.facts_of(devices_[device]).in_host_memory ? 2 : 1, std::memory_order_relaxed);
  return known.load(std::memory_order_relaxed) == 2;
}

// The cheap questions first: of small copies there may be many.
std::optional<Unstaged> Staging::why_not(OpenclState& s, const HostCopy& what, const CopyContext& copy_context) {
  if (mode() == StagingMode::off) return Unstaged::off;
  if (is_small(s, what, copy_context)) return Unstaged::small;
  if (what.events || !what.blocking) return Unstaged::events;
  if (phase() != Phase::running) return Unstaged::exiting;
  if (system_calls_are_filtered()) return Unstaged::filtered;
  if (!copy_context.context || !copy_context.in_order) return Unstaged::unknown_context;
  const auto first = reinterpret_cast<std::uintptr_t>(what.host.base);
  const std::uintptr_t last = first + staging::span_bytes(what.host, what.box) - 1;
  if (s.host_ranges.find(first) || s.host_ranges.find(last)) return Unstaged::not_pageable;
  if (lacks_function_for_staging(what.queue)) return Unstaged::missing_function;
  if (!what.stageable || !fits(s, what)) return Unstaged::shape;
  return std::nullopt;
}

// What comes before it in its queue is none of its time.
Staging::Trial Staging::begin_trial(OpenclState&, const HostCopy& what, const CopyContext&) {
  return {next().clFinish.own(what.queue) == kSuccess};
}

// Both ways block until they are done: one time is both.
void Staging::end_trial(OpenclState&, const HostCopy& what, const Plan& plan, cl_int answer, const Tried& tried) {
  if (answer == kSuccess)
    plan.of->calibration.tried(plan.way, what.box.bytes(), {tried.blocked_ns, tried.blocked_ns, tried.bytes});
}

// What comes before may write the source.
std::optional<Unstaged> Staging::wait_for_earlier_work(OpenclState& s, const HostCopy& what) {
  if (s.unknown_enqueues.load(std::memory_order_relaxed)) return Unstaged::stream_in_use;
  if (next().clFinish.own(what.queue) != kSuccess) return Unstaged::failed;
  return std::nullopt;
}

bool Staging::is_idle(OpenclState& s, const HostCopy& what) { return has_ended(s.functions, what.queue); }

bool Staging::copy_part(OpenclState&, const HostCopy& part, const CopyContext&) {
  const Table& real = next();
  const cl_int error = part.to_device
                           ? real.clEnqueueWriteBuffer.own(part.queue, part.buffer, true, part.offset, part.box.bytes(),
                                                           part.host.base, 0, nullptr, nullptr)
                           : real.clEnqueueReadBuffer.own(part.queue, part.buffer, true, part.offset, part.box.bytes(),
                                                          part.host.base, 0, nullptr, nullptr);
  return error == kSuccess;
}

Staging::Passage Staging::pass_ring(OpenclState& s, const HostCopy& what, const CopyContext& copy_context,
                                    ReadAhead::Copy& ahead, QueueTurn& turn) {
  Passage passage;
  const ContextChunks own = chunks_of(s, copy_context.context, copy_context.device_id);
  if (!own.ring || !own.queue) {
    passage.refused = Unstaged::unknown_context;
    return passage;
  }
  const auto& ring = own.ring;
  ring->note_use(coarse_now_ns());
  StagingChunks chunks(s.functions, s.calls, copy_context.context, own.queue->get());
  OpenclLane lane(what, chunks, ahead, turn.turn());
  const unsigned chunks_before = ring->figures().chunks;
  passage.outcome = what.to_device ? copy_to_device(*ring, chunks, lane, what.host, what.box, staging::Waits::yes)
                                   : copy_to_host(*ring, chunks, lane, what.host, what.box);
  passage.grew = ring->figures().chunks > chunks_before;
  passage.untouched = lane.untouched();
  give_back_unowned(s, copy_context.context, own, chunks);
  const staging::Error error = passage.outcome.error;
  passage.answer = error != staging::Error::none ? static_cast<cl_int>(error) : chunks.error();
  return passage;
}

QueueTurn::QueueTurn(OpenclState& s, cl_command_queue queue) : place_{queue, queue} {
  if (staging::Turns* const turns = s.staging.turns()) turn_.emplace(*turns, queue, queue, [&] { return place_; });
}

OwnQueue::OwnQueue(const Functions& real, cl_context context, cl_device_id device)
    : real_(real), queue_(real.create_queue(context, device, 0, nullptr)) {}

OwnQueue::~OwnQueue() {
  if (queue_) real_.release_queue(queue_);
}

std::size_t trim_rings(OpenclState& s, std::uint64_t unused_for_ns, std::uint64_t now_ns) {
  Vector<cl_context> contexts;
  s.contexts.for_each([&](const void* context, const ContextRecord& record) {
    if (record.chunks.ring && elapsed_ns(record.chunks.ring->used_ns(), now_ns) >= unused_for_ns)
      contexts.push_back(static_cast<cl_context>(const_cast<void*>(context)));
  });
  std::size_t bytes = 0;
  for (const cl_context context : contexts) bytes += give_back_chunks(s, context);
  return bytes;
}

// The driver takes buffers back when they are unmapped, and that may be behind kernels which wait for the program.
void OwnQueue::wait_a_while() const { has_ended(real_, queue_); }

std::size_t give_back_chunks(OpenclState& s, cl_context context, const ContextChunks& own) {
  if (!own.ring || !own.queue) return 0;
  StagingChunks chunks(s.functions, s.calls, context, own.queue->get());
  const std::size_t bytes = own.ring->trim(chunks);
  if (bytes) own.queue->wait_a_while();
  return bytes;
}

// The queue goes when no chunk is left, and no copy has it in hand.
std::size_t give_back_chunks(OpenclState& s, cl_context context) {
  ContextChunks own;
  s.contexts.with(context, [&](const ContextRecord* record) {
    if (record && !record->inherited) own = record->chunks;
  });
  const std::size_t bytes = give_back_chunks(s, context, own);
  std::shared_ptr<OwnQueue> unused;
  own.queue.reset();
  s.contexts.with(context, [&](ContextRecord* record) {
    if (!record || !own.ring || record->chunks.ring != own.ring || record->chunks.queue.use_count() != 1) return;
    if (own.ring->figures().chunks == 0) unused.swap(record->chunks.queue);
  });
  return bytes;
}

}  // namespace cistern::opencl
