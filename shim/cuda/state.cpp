// See state.hpp. Contexts, tracking, and what comes and goes with them.
#include "shim/cuda/state.hpp"

#include <algorithm>
#include <new>

#include "shim/process/kind.hpp"
#include "shim/process/live_page.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern::cuda {
namespace {

constinit std::atomic<CudaState*> the_state{nullptr};
alignas(CudaState) constinit unsigned char state_memory[sizeof(CudaState)] = {};
constinit Lock state_lock;

// Through the table, which answers for what the driver lacks.
#define CISTERN_REAL(name) \
  [](auto... arguments) { return in_host_function ? kNotPermitted : driver().name(arguments...); }
Functions functions_below() {
  return {.memory_allocate = CISTERN_REAL(cuMemAlloc_v2),
          .memory_free = CISTERN_REAL(cuMemFree_v2),
          .host_allocate = CISTERN_REAL(cuMemHostAlloc),
          .host_allocate_plain = CISTERN_REAL(cuMemAllocHost_v2),
          .host_free = CISTERN_REAL(cuMemFreeHost),
          .context_current = CISTERN_REAL(cuCtxGetCurrent),
          .context_push = CISTERN_REAL(cuCtxPushCurrent_v2),
          .context_pop = CISTERN_REAL(cuCtxPopCurrent_v2),
          .context_synchronize = CISTERN_REAL(cuCtxSynchronize),
          .event_create = CISTERN_REAL(cuEventCreate),
          .event_record = CISTERN_REAL(cuEventRecord),
          .event_query = CISTERN_REAL(cuEventQuery),
          .event_elapsed = CISTERN_REAL(cuEventElapsedTime),
          .event_destroy = CISTERN_REAL(cuEventDestroy_v2),
          .stream_query = CISTERN_REAL(cuStreamQuery),
          .stream_is_capturing = CISTERN_REAL(cuStreamIsCapturing),
          .stream_synchronize = CISTERN_REAL(cuStreamSynchronize),
          .copy_to_device = CISTERN_REAL(cuMemcpyHtoDAsync_v2),
          .copy_to_host = CISTERN_REAL(cuMemcpyDtoHAsync_v2),
          .copy_shape = CISTERN_REAL(cuMemcpy3DAsync_v2),
          .pointer_attribute = CISTERN_REAL(cuPointerGetAttribute),
          .address_range = CISTERN_REAL(cuMemGetAddressRange_v2),
          .device_attribute = CISTERN_REAL(cuDeviceGetAttribute),
          .exchange_capture_mode = CISTERN_REAL(cuThreadExchangeStreamCaptureMode),
          .memory_granularity = CISTERN_REAL(cuMemGetAllocationGranularity),
          .addresses_reserve = CISTERN_REAL(cuMemAddressReserve),
          .addresses_free = CISTERN_REAL(cuMemAddressFree),
          .memory_create = CISTERN_REAL(cuMemCreate),
          .memory_release = CISTERN_REAL(cuMemRelease),
          .memory_map = CISTERN_REAL(cuMemMap),
          .memory_unmap = CISTERN_REAL(cuMemUnmap),
          .memory_access = CISTERN_REAL(cuMemSetAccess)};
}
#undef CISTERN_REAL

CudaState& make_state() {
  CudaState* made = nullptr;
  {
    const Uncounted uncounted;
    const Missing missing = missing_functions();  // the driver is looked for before our lock is taken
    {
      const Locked hold(state_lock);
      if (CudaState* const others = the_state.load(std::memory_order_acquire)) return *others;
      made = new (state_memory) CudaState(functions_below(), missing);
      the_state.store(made, std::memory_order_release);
      gpu_state_made.store(true, std::memory_order_release);
    }
    say_missing(missing);
  }
  call_gpu_state_hook();
  return *made;
}

// A program that links the library does not show its streams: a block could be given again before its work has ended.
bool frees_may_be_deferred() {
  return options().device_order == "deferred" && preloaded.load(std::memory_order_relaxed);
}

}  // namespace

CudaState::CudaState(const Functions& below, const Missing& missing)
    : functions(below),
      missing(missing),
      captures(gate),
      contexts(functions, gate),
      account(blocks, contexts),
      pools(functions, gate, blocks, contexts, account,
            {.deferred = frees_may_be_deferred() && !missing.for_order,
             .with_ranges = options().device_pool == "ranges" && !missing.for_ranges}),
      sites_on(options().sites != "off") {
  gate.exiting = [] { return phase() != Phase::running; };
  PhysicalMemory::limit_allows = limit_allows;
  PhysicalMemory::room_for = room_for;
  contexts.device_appeared = [](Device& device) { state().pools.ranges().device_appeared(device); };
  contexts.has_ended = [](Context& context) { ContextEnd(state(), context, ContextEnd::unseen).gone(); };
  staging.set_limits({.interval_ns = options().trim_interval});
}

CudaState& state() {
  look_at_live_page();
  CudaState* made = the_state.load(std::memory_order_acquire);
  return made ? *made : make_state();
}

CudaState* state_if_used() { return the_state.load(std::memory_order_acquire); }

void state_before_fork() { state_lock.lock_for_fork(); }
void state_after_fork() { state_lock.unlock_after_fork(); }

const char* api_name(const char* driver_name) {
  if (!observed) return driver_name;
  observed->seen_by_driver = true;
  return observed->api;
}

SiteId site_of_call(const CudaState& s, const char* api) { return s.sites_on ? capture_site(api) : 0; }

void poison(Context* context) {
  if (context) context->poisoned.store(true, std::memory_order_relaxed);
}

CUresult note(CudaState& s, CUresult result) {
  if (result != kSuccess && is_sticky(result)) [[unlikely]]
    poison(s.contexts.current());
  return result;
}

void* unallocated_address() {
  static char nobodys_byte = 0;
  return &nobodys_byte;
}

Tracked as_tracked(const Block& block) {
  Tracked record;
  const bool on_device = block.kind == BlockKind::device;
  record.family = on_device ? Family::device : Family::pinned;
  record.device = on_device ? block.context->device->ordinal : 0;
  record.bytes = block.requested;
  record.api = block.api;
  record.object = "block";
  record.site = block.site;
  record.born_ns = block.born_ns;
  return record;
}

ContextEnd::ContextEnd(CudaState& s, Context* context) : s_(s), context_(context) {
  if (!context_) return;
  context_->ending.store(true);
  context_->wait_until_left();
  empty_ring();
  take_out();
  context_->wait_until_left();
}

ContextEnd::ContextEnd(CudaState& s, Context& context, Unseen) : s_(s), context_(&context) {
  context_->ending.store(true);
  take_out();
}

void ContextEnd::take_out() {
  ends_range_ = context_->range.load();
  // A block that is kept under another key than its own may have work on the stream of that key.
  const auto keep = [this](const PoolKey& key, Block* block, bool waits) {
    (waits || key != block->key() ? kept_ : settled_).push_back(block);
  };
  s_.pools.take_out(context_, keep);
  s_.pools.source().take_out_postponed(context_, kept_);
}

ContextEnd::~ContextEnd() {
  if (context_) context_->ending.store(false);
}

// Its chunks go with the rest of what the pool keeps. No call is made of a context that a capture is of.
void ContextEnd::empty_ring() {
  Through gate(s_.gate);
  if (!gate) return;
  RelaxedCapture relaxed(s_.functions);
  Entered entered(s_.functions, context_->handle());
  StagingChunks chunks(s_.functions, s_.pools.source(), s_.pools.pinned(), *context_, coarse_now_ns());
  if (entered) context_->ring.empty(chunks);
}

// Blocks that another thread gave back meanwhile are of the old epoch: a pool's hit finds that out.
void ContextEnd::gone() {
  if (!context_) return;
  s_.contexts.note_gone(*context_);
  s_.staging.forget(*context_);
  if (!ends_range_) context_->ending.store(false);
  s_.captures.context_gone(context_->handle());
  for (const Vector<Block*>* kept : {&kept_, &settled_})
    for (Block* block : *kept) s_.pools.source().forget(block);
  const auto forget = [this](const PoolKey&, Block* block, bool) { s_.pools.source().forget(block); };
  s_.pools.take_out(context_, forget);
  s_.pools.source().forget_slabs(context_);
  if (phase() != Phase::running) return;
  end_programs_memory();
  if (!ends_range_) return;
  context_->wait_until_left();  // others may have begun to allocate in the context that follows
  context_->range.exchange(nullptr)->end();
}

// Memory that the program still holds goes with its context; the addresses may be reused. While exiting nothing is
// ended: the runtime itself then gives up its context, and the program never freed the memory that it still holds.
void ContextEnd::end_programs_memory() {
  for (Block* block : programs_blocks()) {
    if (block->state.load() == BlockState::live) {
      account_death(s_, block);
      s_.account.note_went_with_context(as_tracked(*block));
    }
    s_.pools.source().forget(block);
  }
  s_.segments.end_those_of(*context_, [&](const Segment& segment) { s_.pools.source().forget_segment(segment.of); });
  s_.objects.forget_those_of(*context_);
  s_.account.end_tracked_of(*context_);
}

// Those that the pools kept go back to the driver, whose free waits for work that may still use them.
void ContextEnd::gone_into(Context& heir) {
  if (!context_) return;
  s_.contexts.note_gone(*context_);
  s_.staging.forget(*context_);
  context_->ending.store(false);
  s_.captures.context_gone(context_->handle());
  s_.objects.move_those_of(*context_, heir);
  s_.account.move_tracked_of(*context_, heir);
  for (Block* block : programs_blocks()) {
    block->epoch = heir.epoch.load();
    block->context = &heir;
  }
  for (const Vector<Block*>* kept : {&settled_, &kept_})
    for (Block* block : *kept) s_.pools.source().release_unsettled(block);
}

// All of the context's life that is over, those that the pools kept too.
Vector<Block*> ContextEnd::programs_blocks() {
  const std::uint32_t epoch = context_->epoch.load();
  Vector<Block*> blocks;
  s_.blocks.table.for_each([&](Block& block) {
    if (block.context == context_ && block.epoch != epoch) blocks.push_back(&block);
  });
  s_.blocks.for_each_displaced([&](Block& block) {
    if (block.context == context_ && block.epoch != epoch) blocks.push_back(&block);
  });
  // One may have been displaced in between, and stand there twice.
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

// Those that had not settled wait for what is enqueued by now.
void ContextEnd::stays() {
  if (context_) context_->ending.store(false);
  for (Block* block : settled_) s_.pools.give(block, {});
  for (Block* block : kept_) s_.pools.give(block, s_.pools.fence_for(block, true));
}

// --- Objects that are no memory

// The runtime loads code inside of whatever call needs it first, and keeps it.
void note_object(CudaState& s, ObjectType type, const void* handle, const char* driver_name) {
  const bool is_code = type == ObjectType::module || type == ObjectType::library;
  if (is_code && observed) return;
  ObjectRecord record{.type = type, .site = site_of_call(s, driver_name), .api = api_name(driver_name)};
  record.context = type == ObjectType::library ? nullptr : s.contexts.current();
  if (record.context) record.epoch = record.context->epoch.load(std::memory_order_relaxed);
  s.objects.made(handle, record);
}

// --- Across all pools

std::uint64_t trim_all(CudaState& s) { return trim_rings(s, 0, coarse_now_ns()) + s.pools.trim(); }

// Empty segments whose work has not ended keep memory that a call needs now. They are trimmed in any case: another
// thread may have waited for all work since the trim before.
static std::uint64_t trim_segments_after_work(CudaState& s) {
  {
    const Through gate(s.gate);
    const Vector<Context*> busy = gate ? s.segments.busy_contexts() : Vector<Context*>();
    for (Context* const context : busy) s.contexts.wait_for_work(*context);
  }
  return trim_segments();
}

// Or, none kept: waits for what other threads are giving back at this moment.
std::uint64_t trim_for_program(CudaState& s) {
  if (s.gate.closed.load() || phase() != Phase::running || in_host_function) return 0;
  s.pools.source().release_postponed();
  if (const std::uint64_t bytes = s.gate.open() ? trim_all(s) : s.pools.trim_while_capturing()) return bytes;
  if (const std::uint64_t bytes = s.pools.ranges().trim_after_work()) return bytes;
  if (const std::uint64_t bytes = trim_segments_after_work(s)) return bytes;
  return s.pools.wait_for_releases();
}

// The driver is asked only where the limit is a part of the device: a program may be capturing, and this call is none
// that a capture forbids.
std::uint64_t limit_of(const Device& device) {
  const DeviceLimit& limit = options().device_limit;
  if (!limit.is_unclear) return limit.bytes;
  std::size_t bytes = device.total_bytes.load(std::memory_order_relaxed);
  if (!bytes && driver().cuDeviceTotalMem_v2(&bytes, device.ordinal) != kSuccess) bytes = 0;
  return limit.of(bytes);
}

bool limit_allows(const Device& device, std::uint64_t bytes) {
  const std::uint64_t limit = limit_of(device);
  return !limit || (bytes <= limit && taken_bytes(device) <= limit - bytes);
}

// --- Pooled blocks in the program's hands

void record_birth(const Block& block) {
  recording::record_allocation(recorded(block.kind, block.context), as_handle(block.address), block.requested,
                               block.site);
}

void record_death(const Block& block) {
  recording::record_free(recorded(block.kind, block.context), as_handle(block.address));
}

void record_failed(CudaState& s, const recording::Kind& kind, const char* api, std::uint64_t bytes) {
  if (recording::is_on()) recording::record_failure(kind, bytes, site_of_call(s, api));
}

void account_death(CudaState& s, Block* block, const Death& death) {
  if (!death.is_recorded) record_death(*block);
  Share& share = s.pools.source().share_of(block->sort());
  KindCounters& counted = s.account.counters_of(block->kind, block->context);
  const CountedBlock died = as_counted(*block);
  const std::uint64_t reserved = death.kept ? s.pools.reserved_bytes(block->sort()) : 0;
  Locked hold(counted.lock);
  if (death.waited) bump(counted.driver_syncs);
  if (block->kind == BlockKind::device) s.account.live_on_devices.fall(died.bytes);
  const std::uint64_t rounded = as_driver_rounds(died.bytes);
  drop(share.live_bytes, rounded);
  drop(share.waste_bytes, block->bytes - rounded);
  if (block->range) drop(share.in_range_bytes, block->bytes);
  counted.block_died_locked(died, since_start(death.now_ns), reserved);
}

}  // namespace cistern::cuda
