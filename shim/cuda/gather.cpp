// See gather.hpp.
#include "shim/cuda/gather.hpp"

#include <string.h>

#include <new>
#include <utility>

#include "pool/staging/guarded_copy.hpp"
#include "shim/cuda/state.hpp"
#include "shim/cuda/stream_turn.hpp"
#include "shim/cuda/unseen_calls.hpp"
#include "shim/process/process.hpp"
#include "shim/process/system_filter.hpp"

namespace cistern::cuda {
namespace {

constexpr std::size_t kPartsMax = 512, kPartAlignment = 64;
// How long a thread waits for one that sends. The driver may block that one for as long as its queue is full, and the
// work in the queue may wait for this thread.
constexpr std::uint64_t kPatienceNs = 3'000'000'000;

constexpr const char* kSentNames[] = {
#define SENT(name, text) text,
#include "shim/cuda/sent.def"
};
constexpr const char* kOffNames[] = {
    nullptr,
#define GATHER_OFF(name, text) text,
#include "shim/cuda/gather_off.def"
};

}  // namespace

// --- The bytes that are held

std::size_t Gather::Batch::place_for(CUdeviceptr target) const {
  if (parts.empty()) return 0;
  const Part& last = parts.back();
  const std::size_t end = last.at + last.bytes;
  return last.target + last.bytes == target ? end : (end + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

bool Gather::Batch::has_room(CUdeviceptr target, std::size_t bytes) const {
  return parts.size() < kPartsMax && place_for(target) + bytes <= staging::kChunkBytes;
}

void Gather::Batch::add(CUdeviceptr target, std::size_t bytes) {
  const std::size_t at = place_for(target);
  if (!parts.empty() && parts.back().target + parts.back().bytes == target)
    parts.back().bytes += bytes;
  else
    parts.push_back({target, at, bytes});
}

// No: this thread is sending, and the driver, or who stands before it, came back; or another thread took too long.
class Gather::Alone {
 public:
  explicit Alone(Gather& gather) : lock_(gather.lock_), is_reentry_(lock_.held_here()) {
    has_ = !is_reentry_ && lock_.lock_within(kPatienceNs);
    if (!has_ && !is_reentry_) gather.note_off(GatherOff::waited, nullptr);
  }
  ~Alone() {
    if (has_) lock_.unlock();
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  explicit operator bool() const { return has_; }

 private:
  LongLock& lock_;
  const bool is_reentry_;
  bool has_ = false;
};

// --- Which copies

namespace {

// All of the target is memory that the program holds, which no other process and no attribute of its own knows of.
bool is_in_plain_block(CudaState& s, const HostCopy& what, const Context& context) {
  const Block* block = s.blocks.table.find(what.device);
  if (!block) block = s.blocks.containing(what.device);
  if (!block || block->kind != BlockKind::device || block->state.load(std::memory_order_acquire) != BlockState::live)
    return false;
  if (block->marked.load() || block->syncs_memops.load() || block->in_segment) return false;
  if (block->context != &context || !block->context_is_there()) return false;
  const std::uint64_t offset = what.device - block->address.load(std::memory_order_relaxed), bytes = what.box.bytes();
  return bytes <= block->bytes && offset <= block->bytes - bytes;
}

bool is_pageable(CudaState& s, const HostCopy& what) {
  const auto first = reinterpret_cast<std::uintptr_t>(what.host.base);
  for (const std::uintptr_t address : {first, first + what.box.bytes() - 1}) {
    int type = 0;
    if (s.blocks.ranges.find(address)) return false;
    if (s.functions.pointer_attribute(&type, kPointerMemoryType, address) == kSuccess) return false;
  }
  return true;
}

bool is_stream_of(CudaState& s, CUstream stream, const Context& context) {
  if (stream == legacy_stream()) return true;
  bool is = false;
  s.objects.with_stream(stream, [&](const StreamRecord* record) { is = record && record->context == &context; });
  return is;
}

}  // namespace

bool Gather::sees_all_calls(CudaState& s) {
  if (off_.load(std::memory_order_relaxed) != GatherOff::none) return false;
  const std::uint64_t modules = modules_loaded();
  if (modules_seen_.load(std::memory_order_relaxed) == modules) return true;
  const auto stops = [&](GatherOff why, const char* function = nullptr) { return stop(s, why, function), false; };
  if (staging_mode() == StagingMode::off) return stops(GatherOff::staging);
  if (!preloaded.load(std::memory_order_relaxed)) return stops(GatherOff::not_preloaded);
  if (s.missing.for_staging) return stops(GatherOff::missing_function);
  if (another_stands_in_front()) return stops(GatherOff::interposer);
  if (const String function = unseen_function(); !function.empty())
    return stops(GatherOff::unseen_function, function.c_str());
  modules_seen_.store(modules, std::memory_order_relaxed);
  return true;
}

// Null: the copy goes the usual way. The cheap questions come first.
Context* Gather::may_hold(CudaState& s, const HostCopy& what) {
  const std::uint64_t bytes = what.box.bytes();
  if (!what.to_device || !what.pageable || what.described || what.unfit || !bytes || bytes >= kStagedBytesMin ||
      what.stream == per_thread_stream() || in_host_function)
    return nullptr;
  if (!sees_all_calls(s) || !s.gate.open() || system_calls_are_filtered()) return nullptr;
  Context* const context = s.contexts.current();
  if (!context || context->ending.load() || context->poisoned.load()) return nullptr;
  const bool fits =
      is_stream_of(s, what.stream, *context) && is_in_plain_block(s, what, *context) && is_pageable(s, what);
  return fits ? context : nullptr;
}

bool Gather::begin(CudaState& s, Context& context, CUstream stream) {
  const Through gate(s.gate);
  const Inside inside(context);
  if (!gate || context.ending.load()) return false;
  const RelaxedCapture relaxed(s.functions);
  const std::uint64_t now_ns = coarse_now_ns();
  StagingChunks chunks(s.functions, s.pools.source(), s.pools.pinned(), context, now_ns);
  context.ring.note_use(now_ns);
  batch_.chunk = context.ring.take(chunks);
  batch_.context = &context;
  batch_.stream = stream;
  return batch_.chunk;
}

// Once for a batch: what comes later on the stream than its begin is its own.
bool Gather::wait_for_earlier_work(CudaState& s) {
  if (batch_.has_waited) return true;
  const RelaxedCapture relaxed(s.functions);
  return batch_.has_waited = s.functions.stream_synchronize(batch_.stream) == kSuccess;
}

std::optional<CUresult> Gather::hold(CudaState& s, const HostCopy& what) {
  const auto the_usual_way = [](CUresult late) { return late == kSuccess ? std::nullopt : std::optional(late); };
  Context* const context = may_hold(s, what);
  if (!context) return the_usual_way(before_call(Sent::other_copy, Tells::yes));
  const Alone alone(*this);
  if (!alone) return std::nullopt;
  const std::uint64_t bytes = what.box.bytes();
  if (batch_.chunk && (batch_.context != context || batch_.stream != what.stream)) send_batch(s, Sent::other_stream);
  if (batch_.chunk && !batch_.has_room(what.device, bytes)) send_batch(s, Sent::full);
  if (late_ != kSuccess) return tell();
  const bool is_held = (batch_.chunk || begin(s, *context, what.stream)) && (!what.waits || wait_for_earlier_work(s)) &&
                       staging::guarded_copy({.to = batch_.chunk->memory + batch_.place_for(what.device),
                                              .from = what.host.base,
                                              .to_pitch = bytes,
                                              .from_pitch = bytes,
                                              .row_bytes = bytes,
                                              .rows = 1},
                                             staging::Guarded::source);
  if (!is_held) {
    send_batch(s, Sent::other_copy);
    return the_usual_way(tell());
  }
  batch_.add(what.device, bytes);
  copies_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  copies_are_held.store(true, std::memory_order_release);
  return kSuccess;
}

// --- Sending

// As the program's own copies, which a broken one does not keep from the driver. The first error counts.
CUresult Gather::copy_parts(CudaState& s, const Batch& batch) {
  const StreamTurn turn(s, batch.stream, Zero::legacy);
  CUresult answer = kSuccess;
  for (const Part& part : batch.parts) {
    const CUresult one =
        s.functions.copy_to_device(part.target, batch.chunk->memory + part.at, part.bytes, batch.stream);
    if (answer == kSuccess) answer = one;
  }
  submissions_.fetch_add(batch.parts.size(), std::memory_order_relaxed);
  return answer;
}

// The gate is not asked: these are calls of the program's own, later. A driver that is gone answers the next call with
// the same error.
void Gather::send_batch(CudaState& s, Sent why) {
  if (!batch_.chunk) return;
  const Batch batch = std::exchange(batch_, {});
  Context& context = *batch.context;
  CUresult answer = kInvalidContext;
  {
    const Inside inside(context);
    const RelaxedCapture relaxed(s.functions);
    const Entered entered(s.functions, context.handle());
    bool is_marked = batch.parts.empty();
    if (entered && !batch.parts.empty()) {
      answer = copy_parts(s, batch);
      is_marked = s.functions.event_record(static_cast<CUevent>(batch.chunk->event), batch.stream) == kSuccess;
    }
    StagingChunks chunks(s.functions, s.pools.source(), s.pools.pinned(), context, coarse_now_ns());
    if (batch.parts.empty())
      context.ring.give(batch.chunk);
    else if (is_marked)
      context.ring.give_marked(batch.chunk);
    else
      context.ring.give_up(chunks, batch.chunk);
  }
  if (!batch.parts.empty()) {
    sent_[static_cast<int>(why)].fetch_add(1, std::memory_order_relaxed);
    if (is_sticky(answer)) poison(&context);
    if (late_ == kSuccess && answer != kDeinitialized) late_ = answer;
  }
  copies_are_held.store(late_ != kSuccess, std::memory_order_release);
}

CUresult Gather::tell() {
  copies_are_held.store(false, std::memory_order_release);
  return std::exchange(late_, kSuccess);
}

CUresult Gather::send(CudaState& s, Sent why, Tells tells) {
  const Alone alone(*this);
  if (!alone) return kSuccess;
  send_batch(s, why);
  return tells == Tells::yes ? tell() : kSuccess;
}

void Gather::note_off(GatherOff why, const char* function) {
  GatherOff none = GatherOff::none;
  if (!off_.compare_exchange_strong(none, why) || !function) return;
  const std::size_t bytes = strlen(function) + 1;  // its library may be unloaded
  off_for_.store(static_cast<const char*>(memcpy(internal_allocate(bytes), function, bytes)));
}

void Gather::stop(CudaState& s, GatherOff why, const char* function) {
  note_off(why, function);
  if (copies_are_held.load(std::memory_order_acquire)) send(s, Sent::off, Tells::no);
}

CUresult send_held(Sent why, Tells tells) {
  if (in_host_function) return kSuccess;
  CudaState& s = state();
  return s.gather.send(s, why, tells);
}

void stop_gathering(GatherOff why, const char* function) {
  CudaState& s = state();
  s.gather.stop(s, why, function);
}

// --- Reports, forks

void Gather::add_to(Snapshot& snapshot) const {
  GatherFigures figures{copies_.load(), bytes_.load(), submissions_.load()};
  for (int why = 0; why < static_cast<int>(Sent::count); ++why)
    if (const std::uint64_t times = sent_[why].load()) figures.sent.push_back({kSentNames[why], times});
  if (const GatherOff off = off_.load(); off != GatherOff::none) figures.off = kOffNames[static_cast<int>(off)];
  if (const char* const function = off_for_.load()) figures.off_for = function;
  if (figures.copies || figures.off) snapshot.gathered = std::move(figures);
}

void Gather::before_fork(CudaState& s) {
  has_for_fork_ = !lock_.held_here() && lock_.lock_within(kPatienceNs);
  if (has_for_fork_) send_batch(s, Sent::fork);
}

void Gather::after_fork_in_parent() {
  if (std::exchange(has_for_fork_, false)) lock_.unlock();
}

// A thread of the parent's may have been in the middle of it, or a signal handler of this thread forked there: that one
// goes on with what it has.
void Gather::after_fork_in_child() {
  if (!has_for_fork_ && lock_.held_here()) return;
  has_for_fork_ = false;
  new (&lock_) LongLock;
  new (&batch_) Batch;
  late_ = kSuccess;
  copies_are_held.store(false);
  copies_ = bytes_ = submissions_ = 0;
  for (auto& times : sent_) times = 0;
}

}  // namespace cistern::cuda
