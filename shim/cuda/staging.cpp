// See staging.hpp. Functions stand in the order in which the engine (shim/staging/engine.hpp) calls them for a copy.
#include "shim/cuda/staging.hpp"

#include <algorithm>

#include "shim/cuda/state.hpp"
#include "shim/cuda/stream_turn.hpp"
#include "shim/process/process.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/staging/host_lane.hpp"
#include "shim/staging/touchable.hpp"
#include "stats/counters.hpp"

namespace cistern::cuda {
namespace {

constexpr int kReadsHostPageTables = 100, kIntegrated = 18;  // CUdevice_attribute
constexpr std::size_t kTrialsOpenMax = 64;

// Stands around a few driver calls of Cistern's own. False: a stream captures, so none may be made.
class CallsOfOurs {
 public:
  explicit CallsOfOurs(CudaState& s) : gate_(s.gate) {
    if (gate_) relaxed_.emplace(s.functions);
  }
  explicit operator bool() const { return static_cast<bool>(gate_); }

 private:
  Through gate_;
  std::optional<RelaxedCapture> relaxed_;
};

// Waits for the stream, for a copy that waits. Captures do not forbid such a copy, but they forbid this wait, and one
// may have begun since the copy did: so this thread's capture mode is relaxed meanwhile.
CUresult synchronize(CudaState& s, CUstream stream) {
  const RelaxedCapture relaxed(s.functions);
  return s.functions.stream_synchronize(stream);
}

}  // namespace

// --- Which way a copy goes

Staging::CopyContext Staging::context_of_copy(CudaState& s, const HostCopy&) {
  Context* const context = s.contexts.current();
  return {context, context ? context->device->ordinal : 0};
}

namespace {

// Whether the device's side lies in one block, and no pitch is beyond the maximum of all devices. Otherwise the driver
// refuses the whole copy, while it would take some of the pieces.
bool is_within_a_block(CudaState& s, const HostCopy& what) {
  CUdeviceptr first = what.device;
  staging::Side side{nullptr, 0, 0};
  if (what.described) {
    const CUDA_MEMCPY3D::Side& of = what.to_device ? what.described->target : what.described->source;
    if (of.memory_type == kMemoryArray) return false;
    side.row_pitch = of.pitch;
    side.slice_pitch = of.pitch * of.height;
    first = of.device + of.z * side.slice_pitch + of.y * side.row_pitch + of.x_bytes;
    constexpr std::size_t kPitchMax = INT32_MAX;
    if (side.row_pitch > kPitchMax || what.host.row_pitch > kPitchMax) return false;
  }
  const std::uint64_t span = staging::span_bytes(side, what.box);
  if (const auto range = s.blocks.ranges.find(first))
    return range->value.kind == RangeKind::device && span <= range->first + range->bytes - first;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  int type = 0, managed = 1;
  return s.functions.pointer_attribute(&type, kPointerMemoryType, first) == kSuccess && type == kMemoryDevice &&
         s.functions.pointer_attribute(&managed, kPointerIsManaged, first) == kSuccess && !managed &&
         s.functions.address_range(&base, &bytes, first) == kSuccess && span <= base + bytes - first;
}

}  // namespace

bool Staging::reads_host(CudaState& s, const CopyContext& copy_context) {
  const int device = copy_context.device;
  std::atomic<signed char>& known = page_tables_[device];
  if (!known.load(std::memory_order_relaxed)) {
    int reads = 0, integrated = 0;
    const auto ask = s.functions.device_attribute;
    if (ask(&reads, kReadsHostPageTables, device) != kSuccess) reads = 0;
    if (ask(&integrated, kIntegrated, device) != kSuccess) integrated = 0;
    known.store(reads || integrated ? 2 : 1, std::memory_order_relaxed);
  }
  return known.load(std::memory_order_relaxed) == 2;
}

// The cheap questions come first, since a program may make many small copies.
std::optional<Unstaged> Staging::why_not(CudaState& s, const HostCopy& what, const CopyContext& copy_context) {
  Context* const context = copy_context.context;
  if (!what.pageable) return Unstaged::not_pageable;
  if (mode() == StagingMode::off) return Unstaged::off;
  if (is_small(s, what, copy_context)) return Unstaged::small;
  if (s.missing.for_staging) return Unstaged::missing_function;
  if (what.unfit) return what.unfit;
  if (s.gate.closed.load(std::memory_order_relaxed) || phase() != Phase::running) return Unstaged::exiting;
  if (s.captures.any()) return Unstaged::capturing;
  if (system_calls_are_filtered()) return Unstaged::filtered;
  if (!context || context->ending.load() || context->poisoned.load()) return Unstaged::unknown_context;
  if (what.stream != legacy_stream() && what.stream != per_thread_stream()) {
    bool own = false;
    s.objects.with_stream(what.stream, [&](const StreamRecord* record) { own = record && record->context == context; });
    if (!own) return Unstaged::unknown_context;
  }
  const auto first = reinterpret_cast<std::uintptr_t>(what.host.base);
  const std::uintptr_t last = first + staging::span_bytes(what.host, what.box) - 1;
  for (const std::uintptr_t address : {first, last}) {
    int type = 0;
    if (s.blocks.ranges.find(address)) return Unstaged::not_pageable;
    if (s.functions.pointer_attribute(&type, kPointerMemoryType, address) == kSuccess) return Unstaged::not_pageable;
  }
  if (!is_within_a_block(s, what)) return Unstaged::shape;
  return std::nullopt;
}

// Reads the times of trials whose copy has ended by now.
void Staging::take_in_trials(CudaState& s, const CopyContext& copy_context) {
  if (!trials_open_.load(std::memory_order_relaxed)) return;
  const CallsOfOurs allowed(s);
  if (!allowed) return;
  Vector<OpenTrial> ours;
  {
    Locked hold(lock());
    const auto others = std::partition(trials_.begin(), trials_.end(),
                                       [&](const OpenTrial& trial) { return trial.context != copy_context.context; });
    ours.assign(others, trials_.end());
    trials_.erase(others, trials_.end());
  }
  Vector<OpenTrial> open;
  for (const OpenTrial& trial : ours) {
    const CUresult answer = trial.of ? s.functions.event_query(trial.events.ended) : kSuccess;
    if (answer == kNotReady) {
      open.push_back(trial);
      continue;
    }
    float milliseconds = 0;
    if (trial.of && answer == kSuccess &&
        s.functions.event_elapsed(&milliseconds, trial.events.begun, trial.events.ended) == kSuccess)
      trial.of->calibration.tried(
          trial.way, trial.bytes,
          {static_cast<std::uint64_t>(milliseconds * 1e6F), trial.tried.blocked_ns, trial.tried.bytes});
    s.functions.event_destroy(trial.events.begun);
    if (trial.events.ended) s.functions.event_destroy(trial.events.ended);
  }
  Locked hold(lock());
  trials_.insert(trials_.end(), open.begin(), open.end());
  trials_open_.store(static_cast<int>(trials_.size()));
}

// Only if no work comes before the copy on its stream.
Staging::Trial Staging::begin_trial(CudaState& s, const HostCopy& what, const CopyContext&) {
  const CallsOfOurs allowed(s);
  Trial trial;
  if (!allowed) return {};
  if (s.functions.stream_query(what.stream) != kSuccess) return {};
  if (s.functions.event_create(&trial.begun, 0) != kSuccess) return {};
  if (s.functions.event_create(&trial.ended, 0) == kSuccess &&
      s.functions.event_record(trial.begun, what.stream) == kSuccess)
    return trial;
  s.functions.event_destroy(trial.begun);
  if (trial.ended) s.functions.event_destroy(trial.ended);
  return {};
}

// --- Through the ring

// Earlier work on the stream may write the source: a copy that waits waits for that work first.
std::optional<Unstaged> Staging::wait_for_earlier_work(CudaState& s, const HostCopy& what) {
  if ((what.waits || !what.to_device) && synchronize(s, what.stream) != kSuccess) return Unstaged::failed;
  return std::nullopt;
}

// A blocking stream may also wait for the legacy default stream.
bool Staging::is_idle(CudaState& s, const HostCopy& what) {
  const CallsOfOurs allowed(s);
  return allowed && s.functions.stream_query(what.stream) == kSuccess &&
         (what.stream == legacy_stream() || s.functions.stream_query(legacy_stream()) == kSuccess);
}

namespace {

// The driver's part of one copy through the ring (Lane in pool/staging/transfer.hpp).
class CudaLane final : public HostLane {
 public:
  CudaLane(CudaState& s, const HostCopy& what, Context& context, ReadAhead::Copy& ahead, staging::Turn* turn)
      : HostLane(what.to_device, ahead, turn),
        s_(s),
        what_(what),
        context_(context),
        gate_(s.gate),
        inside_(context),
        relaxed_(s.functions) {}

  bool open() const { return static_cast<bool>(*gate_) && !context_.ending.load(); }
  // No piece was enqueued: the program's own call makes the whole copy.
  bool untouched() const { return untouched_; }
  bool must_wait() const { return must_wait_; }

  staging::Error enqueue(const staging::Piece& piece, char* chunk) override {
    const staging::Side packed{chunk, piece.box.row_bytes, piece.box.row_bytes * piece.box.rows};
    const staging::Error answer = copy_piece(piece, packed);
    enqueued_ |= answer == staging::Error::none;
    return answer;
  }
  staging::Error mark(staging::Chunk& chunk) override {
    return staging::Error{s_.functions.event_record(static_cast<CUevent>(chunk.event), what_.stream)};
  }
  // This is the program's own call: threads that wait for the end of Cistern's calls need not wait for it.
  staging::Error pass_on(const staging::Piece& piece) override {
    relaxed_.reset();
    inside_.reset();
    gate_.reset();
    if (!enqueued_ && piece.box.bytes() == what_.box.bytes()) {
      untouched_ = true;
      return staging::Error::none;
    }
    must_wait_ = what_.waits;
    return copy_piece(piece, piece.of(what_.host));
  }
  bool interrupted() override {
    return s_.gate.waiting.load() || s_.gate.captures.load() || context_.ending.load() || phase() != Phase::running;
  }

 private:
  staging::Error copy_piece(const staging::Piece& piece, const staging::Side& host) const {
    const Functions& real = s_.functions;
    if (!what_.described) {
      const CUdeviceptr device = what_.device + piece.byte;
      return staging::Error{what_.to_device ? real.copy_to_device(device, host.base, piece.box.row_bytes, what_.stream)
                                            : real.copy_to_host(host.base, device, piece.box.row_bytes, what_.stream)};
    }
    CUDA_MEMCPY3D copy = *what_.described;
    CUDA_MEMCPY3D::Side &on_host = what_.to_device ? copy.source : copy.target,
                        &on_device = what_.to_device ? copy.target : copy.source;
    on_device.x_bytes += piece.byte;
    on_device.y += piece.row;
    on_device.z += piece.slice;
    on_host = {};
    on_host.memory_type = kMemoryHost;
    on_host.host = host.base;
    on_host.pitch = host.row_pitch;
    on_host.height = host.row_pitch ? host.slice_pitch / host.row_pitch : 0;
    copy.width_bytes = piece.box.row_bytes;
    copy.height = piece.box.rows;
    copy.depth = piece.box.slices;
    return staging::Error{real.copy_shape(&copy, what_.stream)};
  }

  CudaState& s_;
  const HostCopy& what_;
  Context& context_;
  std::optional<Through> gate_;
  std::optional<Inside> inside_;
  std::optional<RelaxedCapture> relaxed_;
  bool enqueued_ = false, untouched_ = false, must_wait_ = false;
};

}  // namespace

// As a copy that waits: its first part does.
bool Staging::copy_part(CudaState& s, const HostCopy& part, const CopyContext& copy_context) {
  ReadAhead::Copy nothing;
  CudaLane lane(s, part, *copy_context.context, nothing, nullptr);
  return lane.open() && lane.enqueue({0, 0, 0, part.box}, part.host.base) == staging::Error::none &&
         synchronize(s, part.stream) == kSuccess;
}

Staging::Passage Staging::pass_ring(CudaState& s, const HostCopy& what, const CopyContext& copy_context,
                                    ReadAhead::Copy& ahead, StreamTurn& turn) {
  Passage passage;
  bool must_wait = false;
  {
    CudaLane lane(s, what, *copy_context.context, ahead, turn.turn());
    if (!lane.open()) {
      passage.refused = Unstaged::interrupted;
      return passage;
    }
    const std::uint64_t now_ns = coarse_now_ns();
    StagingChunks chunks(s.functions, s.pools.source(), s.pools.pinned(), *copy_context.context, now_ns);
    staging::Ring& ring = copy_context.context->ring;
    ring.note_use(now_ns);
    const unsigned chunks_before = ring.figures().chunks;
    passage.outcome = what.to_device ? copy_to_device(ring, chunks, lane, what.host, what.box,
                                                      what.waits ? staging::Waits::yes : staging::Waits::no)
                                     : copy_to_host(ring, chunks, lane, what.host, what.box);
    must_wait = lane.must_wait();
    passage.untouched = lane.untouched();
    passage.grew = ring.figures().chunks > chunks_before;
  }
  passage.answer = static_cast<CUresult>(passage.outcome.error);
  if (!passage.untouched && passage.answer == kSuccess && must_wait) passage.answer = synchronize(s, what.stream);
  return passage;
}

// --- The end of a trial

// After the copy: its second event goes into the stream, and take_in_trials reads both later.
void Staging::end_trial(CudaState& s, const HostCopy& what, const Plan& plan, CUresult, const Tried& tried) {
  Context* const context = plan.copy_context.context;
  if (const CallsOfOurs allowed(s);
      allowed && !context->ending.load() && s.functions.event_record(plan.trial.ended, what.stream) == kSuccess) {
    Locked hold(lock());
    if (trials_.size() < kTrialsOpenMax) {
      trials_.push_back({context, plan.of, plan.way, plan.trial, what.box.bytes(), tried});
      trials_open_.store(static_cast<int>(trials_.size()));
      return;
    }
  }
  put_away(s, context, plan.trial);
}

// Destroys the events. While a stream captures that is forbidden: then take_in_trials does it later.
void Staging::put_away(CudaState& s, Context* context, const Trial& trial) {
  if (const CallsOfOurs allowed(s); allowed) {
    s.functions.event_destroy(trial.begun);
    if (trial.ended) s.functions.event_destroy(trial.ended);
    return;
  }
  Locked hold(lock());
  trials_.push_back({context, nullptr, staging::Way::native, trial, 0, {}});
  trials_open_.store(static_cast<int>(trials_.size()));
}

// --- Contexts, forks, trims

// The events end with their context.
void Staging::forget(Context& context) {
  Locked hold(lock());
  std::erase_if(trials_, [&](const OpenTrial& trial) { return trial.context == &context; });
  trials_open_.store(static_cast<int>(trials_.size()));
}

void Staging::after_fork_in_child() {
  trials_.clear();
  trials_open_.store(0);
  forget_in_child();
}

std::uint64_t trim_rings(CudaState& s, std::uint64_t unused_for_ns, std::uint64_t now_ns) {
  Vector<Context*> with_chunks;  // nothing is called under the lock of the contexts
  s.contexts.for_each([&](Context& context) {
    const bool unused = elapsed_ns(context.ring.used_ns(), now_ns) >= unused_for_ns;
    if (unused && context.ring.figures().chunks) with_chunks.push_back(&context);
  });
  std::uint64_t bytes = 0;
  Through gate(s.gate);
  if (!gate || with_chunks.empty()) return bytes;
  RelaxedCapture relaxed(s.functions);
  for (Context* const context : with_chunks) {
    Inside inside(*context);
    if (context->ending.load()) continue;
    Entered entered(s.functions, context->handle());
    StagingChunks chunks(s.functions, s.pools.source(), s.pools.pinned(), *context, now_ns);
    if (entered) bytes += context->ring.trim(chunks);
  }
  return bytes;
}

}  // namespace cistern::cuda
