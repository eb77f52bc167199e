// Device and pinned memory: whole driver allocations are recycled; everything that the driver alone can answer rightly
// is passed on and counted as unpooled, with the reason.
//
//   allocate -> why_not_pooled? -> the real call, adopted as a block that will really be freed
//            -> a cached chunk of the same size (thread cache, shared pool), else one that is little larger, else a new
//               one, for which what is cached makes room (pool/acquire.hpp)
//   free     -> why_not_pooled? -> the real call
//            -> strict: wait for the context, as the driver's free does, then the block may be seen again
//            -> deferred, or while a stream captures, or with other contexts alive: quarantine behind their clocks
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>

#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/state.hpp"
#include "shim/process/log.hpp"
#include "shim/process/misuse.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/format.hpp"
#include "stats/sink.hpp"

namespace cistern::cuda {
namespace {

// A chunk may be larger than what was asked for by an eighth, as long as a quarter of the device is free and all live
// chunks together waste at most this part of it: a program that fills the device must not run out of memory earlier
// than without us.
constexpr std::uint64_t kNearDivisor = 8, kWasteDivisor = 64;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 46;

struct Wanted {
  BlockKind kind;
  std::uint64_t traits, bytes;
  const char* api;
};

KindCounters& counters_of(CudaState& s, BlockKind kind, const Context* context) {
  if (kind == BlockKind::pinned) return counters(s, Family::pinned);
  return counters(s, Family::device, context ? context->device->ordinal : 0);
}

std::optional<Unpooled> why_size_not_pooled(BlockKind kind, std::uint64_t bytes) {
  const Options& chosen = options();
  if (kind == BlockKind::device) {
    if (!chosen.device_pool) return Unpooled::pool_off;
    if (bytes < chosen.device_object_min) return Unpooled::too_small;
    if (bytes > chosen.device_object_max || bytes > kBytesMax) return Unpooled::too_large;
    return {};
  }
  if (!chosen.pinned_pool) return Unpooled::pool_off;
  if (bytes > chosen.pinned_object_max || bytes > kBytesMax) return Unpooled::too_large;
  return {};
}

// What both allocations and frees ask first. A capture that forbids the call must be invalidated by it, as without us.
std::optional<Unpooled> why_not_pooled(CudaState& s, BlockKind kind, std::uint64_t bytes, const Context* current) {
  if (!current) return Unpooled::no_context;
  if (phase() != Phase::running) return Unpooled::exiting;
  if (current->poisoned.load(std::memory_order_relaxed)) return Unpooled::context_poisoned;
  if (s.captures.forbid_unsafe_calls()) return Unpooled::capturing;
  return why_size_not_pooled(kind, bytes);
}

// --- Allocating

void hand_out(CudaState& s, Block* block, const Wanted& wanted, bool hit) {
  block->births.store(block->births.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  block->requested = wanted.bytes;
  block->api = wanted.api;
  block->site = capture(s, wanted.api);
  block->freed_site = 0;
  block->born_ns = coarse_nanoseconds_since_start();
  block->recycled |= hit;
  block->buffer_id = 0;
  account_birth(s, block, hit);
  block->state.store(BlockState::live, std::memory_order_release);
}

// Memory that the program's own call got, of exactly this size: really freed when its time comes.
void adopt_unpooled(CudaState& s, const Wanted& wanted, std::uintptr_t address) {
  Context* context = current_context(s);
  if (!context || !address) return;
  Block* block = s.source.adopt({context, wanted.traits, as_driver_rounds(wanted.bytes)}, address);
  block->unpooled = true;
  hand_out(s, block, wanted, false);
}

std::uint64_t device_total(CudaState& s, Device& device) {
  if (!device.total_bytes.load(std::memory_order_relaxed)) sample_device_memory(s, device);
  return device.total_bytes.load(std::memory_order_relaxed);
}

// New chunks have the size that the driver would take; small pinned ones that of their class, to share slabs.
std::uint64_t chunk_bytes(const Wanted& wanted) {
  const bool piece = wanted.kind == BlockKind::pinned && wanted.bytes <= kSmallPinnedBytes;
  return piece ? chunk_bytes_for(wanted.bytes) : as_driver_rounds(wanted.bytes);
}

// The largest chunk that may be given for a request.
std::uint64_t near_bytes_max(CudaState& s, const Wanted& wanted, Context* context, std::uint64_t bytes) {
  const std::uint64_t near = bytes + bytes / kNearDivisor;
  if (wanted.kind == BlockKind::pinned) return near;
  Device& device = *context->device;
  const std::uint64_t limit = options().device_limit, all = device_total(s, device);
  const std::uint64_t total = limit ? std::min(limit, all) : all;
  if (taken_bytes(device) > total / 4 * 3) return bytes;
  const std::uint64_t waste = device.waste_bytes.load(std::memory_order_relaxed), waste_max = total / kWasteDivisor;
  return waste >= waste_max ? bytes : std::min(near, bytes + (waste_max - waste));
}

// Whose limit a request has to keep: pinned memory is no device's.
Context* limited_by(BlockKind kind, Context* context) { return kind == BlockKind::device ? context : nullptr; }

[[gnu::noinline]] Acquired<Block*, CUresult> acquire_new(CudaState& s, const Wanted& wanted, Context* context,
                                                         std::uint64_t bytes) {
  s.source.release_postponed();
  sample_device_memory(s, *context->device);
  Acquired<Block*, CUresult> acquired{nullptr, kOutOfMemory, false};
  acquired.error = with_room(s, limited_by(wanted.kind, context), bytes, [&] {
    if (wanted.kind == BlockKind::pinned) {
      acquired = s.source.acquire({context, wanted.traits, bytes});
      return acquired.error;
    }
    GranuleMeasurement measurement(s, *context->device, bytes);
    acquired = s.source.acquire({context, wanted.traits, bytes});
    if (acquired.ok) measurement.allocated();
    return acquired.error;
  });
  return acquired;
}

// The allocation as a pool sees it.
struct Want {
  CudaState& s;
  const Wanted& wanted;
  Context* context;
  PoolKey key;

  std::uint64_t bytes_max() const { return near_bytes_max(s, wanted, context, key.bytes); }
  bool is_there(Block* block) const {
    if (block->context_is_there()) [[likely]]
      return true;
    s.source.forget(block);  // given back while its context went
    return false;
  }
  Acquired<Block*, CUresult> acquire() const { return acquire_new(s, wanted, context, key.bytes); }
};

// What the program is told when neither the pool nor the driver had the memory.
CUresult failed(CudaState& s, const Wanted& wanted, const Context* context, CUresult answer) {
  add(counters_of(s, wanted.kind, context).failed);
  if (note(s, answer) == kOutOfMemory)
    report_out_of_memory(s, wanted.api, wanted.kind == BlockKind::device ? Family::device : Family::pinned,
                         context ? context->device->ordinal : 0, wanted.bytes);
  return answer;
}

CUresult allocate_pooled(CudaState& s, const Wanted& wanted, Context* context, std::uintptr_t* address) {
  const Want want{s, wanted, context, {reinterpret_cast<std::uintptr_t>(context), wanted.traits, chunk_bytes(wanted)}};
  const auto [got, hit] = acquire(pool_of(s, wanted.kind), want, coarse_now_ns());
  if (!got.ok) [[unlikely]]
    return failed(s, wanted, context, got.error);
  if (!hit) add(counters_of(s, wanted.kind, context).pool_misses);
  *address = got.chunk->address.load(std::memory_order_relaxed);
  hand_out(s, got.chunk, wanted, hit);
  return kSuccess;
}

// The program's own call. What the pools keep makes way for it.
template <class Pass>
CUresult pass_on(CudaState& s, const Wanted& wanted, Context* context, Unpooled reason, Pass pass) {
  const CUresult answer = with_room(s, limited_by(wanted.kind, context), wanted.bytes, pass);
  if (answer != kSuccess) return failed(s, wanted, context, answer);
  KindCounters& counted = counters_of(s, wanted.kind, context);
  counted.count_unpooled(reason);
  add(counted.driver_allocs);
  if (context) sample_device_memory(s, *context->device);
  return kSuccess;
}

// `pass` makes the program's own call; `result` is where it leaves the address.
template <class Pass, class Address>
CUresult allocate(CudaState& s, const Wanted& wanted, Address* result, Pass pass) {
  Context* context = current_context(s);
  const auto reason = why_not_pooled(s, wanted.kind, wanted.bytes, context);
  if (!reason) {
    std::uintptr_t address = 0;
    const CUresult answer = allocate_pooled(s, wanted, context, &address);
    if (answer == kSuccess) *result = (Address)address;
    return answer;
  }
  const CUresult answer = pass_on(s, wanted, context, *reason, pass);
  if (answer == kSuccess) adopt_unpooled(s, wanted, (std::uintptr_t)*result);
  return answer;
}

// --- Freeing

// The context's own queue of work is waited for, whichever context is current. Not while a stream captures: kNotReady.
CUresult synchronise(CudaState& s, Context* context, const Context* current, DriverCalls& calls) {
  Through gate(s.gate);
  if (!gate) return kNotReady;
  calls.syncs.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t number = context->clock.last();
  CUresult result = kSuccess;
  if (context == current) {
    result = s.functions.context_synchronize();
  } else {
    Entered entered(s.functions, context->handle());
    result = entered ? s.functions.context_synchronize() : kInvalidContext;
  }
  if (result == kSuccess) context->clock.synchronised(number);
  if (is_sticky(result)) poison(context);
  return result;
}

DriverCalls& calls_of(CudaState& s, const Block& block) {
  return block.kind == BlockKind::device ? block.context->device->calls : s.source.pinned_calls;
}

// A piece of a slab is not the driver's to free, and the first piece has the slab's own address. The driver is asked
// about an address that nobody allocated: it says whether such a call is refused now, as while capturing or after a
// fault.
CUresult free_piece(CudaState& s, Block* piece, Unpooled reason) {
  const CUresult answer = note(s, driver().cuMemFreeHost(unallocated_address()));
  if (answer != kInvalidValue && answer != kSuccess && answer != kDeinitialized) {
    piece->state.store(BlockState::live, std::memory_order_release);
    return answer;
  }
  counters(s, Family::pinned).count_unpooled(reason);
  account_death(s, piece);
  if (answer == kDeinitialized) return answer;
  give_to_pool(s, piece, fence_for(s, piece, true));
  s.source.release_postponed();
  return kSuccess;
}

// The program's own free.
template <class Pass>
CUresult really_free(CudaState& s, Block* block, std::optional<Unpooled> reason, Pass pass) {
  if (block->slab) return free_piece(s, block, *reason);
  s.blocks.hide(block);
  const CUresult answer = note(s, pass());
  if (answer != kSuccess && answer != kDeinitialized) {
    s.blocks.show(block, BlockState::live);
    return answer;
  }
  KindCounters& counted = counters_of(s, block->kind, block->context);
  if (reason) counted.count_unpooled(*reason);
  add(counted.driver_frees);
  account_death(s, block);
  s.source.freed_by_program(block);
  s.blocks.put_away(block);
  return answer;
}

// A block that the program gave back already gets the driver's answer for memory that is not there: a capture or a
// fault may change it.
template <class Free>
CUresult freed_already(Block* block, const char* api, Free free) {
  report_double_free(api_name(api), block->address.load(), block->kind == BlockKind::device ? "device" : "pinned",
                     block->site, block->freed_site);
  const CUresult answer = free(unallocated_address());
  return answer == kSuccess ? kInvalidValue : answer;
}

template <class Pass>
CUresult free_block(CudaState& s, Block* block, const char* api, Pass pass) {
  Context* current = current_context(s);
  if (!block->context_is_there()) return pass();
  BlockState live = BlockState::live;
  if (!block->state.compare_exchange_strong(live, BlockState::cached)) {
    if (live == BlockState::gone) return pass();
    return freed_already(block, api, [&](void* nowhere) {
      return note(s, block->kind == BlockKind::device ? driver().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(nowhere))
                                                      : driver().cuMemFreeHost(nowhere));
    });
  }
  if (block->unpooled) return really_free(s, block, std::nullopt, pass);  // counted when it was allocated
  const auto reason = why_not_pooled(s, block->kind, block->requested, current);
  if (reason) return really_free(s, block, *reason, pass);
  if (block->marked.load(std::memory_order_relaxed)) return really_free(s, block, Unpooled::exported, pass);
  if (block->context->poisoned.load()) return really_free(s, block, Unpooled::context_poisoned, pass);
  const CUresult waited = s.deferred ? kNotReady : synchronise(s, block->context, current, calls_of(s, *block));
  const bool waits = waited == kNotReady;
  if (waited != kSuccess && !waits) return really_free(s, block, Unpooled::context_poisoned, pass);
  block->freed_site = capture(s, api);
  account_death(s, block);
  give_to_pool(s, block, fence_for(s, block, waits));
  s.source.release_postponed();
  return kSuccess;
}

// A pointer that the driver would not free: perhaps a live block, of the other kind.
void report_refused(CudaState& s, const void* pointer, const char* api) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const Block* block = s.blocks.table.find(address);
  if (!block || block->state.load() != BlockState::live) return report_unknown_pointer(api_name(api), address);
  report_wrong_free(api_name(api), address, block->kind == BlockKind::device ? "device" : "pinned", block->site);
}

// Memory that is not a block: tracked (managed, stream-ordered), or the driver's to judge.
template <class Pass>
CUresult free_other(CudaState& s, const void* pointer, const char* api, Pass pass) {
  Tracked record;
  const bool known = take_tracked(s, pointer, record);
  const CUresult answer = note(s, pass());
  const bool gone = answer == kSuccess || answer == kDeinitialized;
  if (known) gone ? forget_tracked(s, record) : restore_tracked(s, pointer, std::move(record));
  if (!known && answer == kInvalidValue && pointer && phase() == Phase::running) report_refused(s, pointer, api);
  return answer;
}

// A block may be freed in stream order too: it leaves the pool's hands for good.
template <class Free>
CUresult free_in_stream_order(CUdeviceptr pointer, CUstream stream, const char* api, const Free& real) {
  CudaState& s = state();
  const auto pass = [&] { return real(pointer, stream); };
  Block* const block = pointer ? s.blocks.table.find(pointer) : nullptr;
  if (!block || block->kind != BlockKind::device || !block->context_is_there())
    return free_other(s, reinterpret_cast<const void*>(pointer), api, pass);
  BlockState live = BlockState::live;
  if (!block->state.compare_exchange_strong(live, BlockState::cached))
    return freed_already(block, api,
                         [&](void* nowhere) { return note(s, real(reinterpret_cast<CUdeviceptr>(nowhere), stream)); });
  return really_free(s, block, Unpooled::stream_ordered_free, pass);
}

// --- Pinned memory

// One node per machine is the usual case, and needs no system call.
std::uint64_t numa_traits() {
  static constinit std::atomic<int> known{-1};  // whether there are several nodes
  int several = known.load(std::memory_order_relaxed);
  if (several < 0) {
    const Uncounted keeps_errno;
    known.store(several = access("/sys/devices/system/node/node1", F_OK) == 0);
  }
  if (!several) return 0;
  unsigned processor = 0, node = 0;
  getcpu(&processor, &node);
  return std::uint64_t{node} << kNodeShift;
}

std::uint64_t machine_memory_bytes() {
  struct sysinfo machine;
  return sysinfo(&machine) == 0 ? std::uint64_t{machine.totalram} * machine.mem_unit : 0;
}

void warn_of_much_pinned(CudaState& s) {
  static constinit std::atomic<std::uint64_t> known{0};
  std::uint64_t ram = known.load(std::memory_order_relaxed);
  if (!ram) known.store(ram = machine_memory_bytes());
  const std::uint64_t pinned = s.source.pinned_reserved_bytes.load(std::memory_order_relaxed);
  if (!ram || pinned <= ram / 4) [[likely]]
    return;
  if (s.pinned_warned.exchange(true)) return;
  Uncounted uncounted;
  StringSink line;
  line.print("%s of host memory are pinned, more than a quarter of the machine's %s", human_bytes(pinned).c_str(),
             human_bytes(ram).c_str());
  warn_line(line.text());
}

// --- Pitch: a pitched allocation is a linear one whose pitch the driver chooses, the same for the same width

struct PitchKey {
  int device;
  std::size_t width;
  unsigned element;
  bool operator==(const PitchKey&) const = default;
};
struct PitchHash {
  std::size_t operator()(const PitchKey& key) const {
    return (key.width * 64 + key.element * 1024 + static_cast<unsigned>(key.device)) * 0x9E3779B97F4A7C15ull >> 16;
  }
};
using Pitches = Map<PitchKey, std::size_t, PitchHash>;
constinit Lock pitch_lock;
constinit Pitches* all_pitches = nullptr;  // under the lock

Pitches& pitches() {
  if (!all_pitches) all_pitches = new (internal_allocate(sizeof(Pitches))) Pitches;
  return *all_pitches;
}

std::size_t known_pitch(const PitchKey& key) {
  Locked hold(pitch_lock);
  auto found = pitches().find(key);
  return found == pitches().end() ? 0 : found->second;
}

}  // namespace

void pitch_before_fork() { pitch_lock.lock_for_fork(); }
void pitch_after_fork() { pitch_lock.unlock_after_fork(); }

namespace hook {

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  if (!pointer || !bytes) return driver().cuMemAlloc_v2(pointer, bytes);
  CudaState& s = state();
  return allocate(s, {BlockKind::device, kDeviceTraits, bytes, api_name("cuMemAlloc_v2")}, pointer,
                  [&] { return driver().cuMemAlloc_v2(pointer, bytes); });
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  CudaState& s = state();
  const auto pass = [&] { return driver().cuMemFree_v2(pointer); };
  Block* block = pointer ? s.blocks.table.find(pointer) : nullptr;
  if (block && block->kind == BlockKind::device) return free_block(s, block, "cuMemFree_v2", pass);
  return free_other(s, reinterpret_cast<const void*>(pointer), "cuMemFree_v2", pass);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned element) {
  const auto pass = [&] { return driver().cuMemAllocPitch_v2(pointer, pitch, width, height, element); };
  if (!pointer || !pitch || !width || !height) return pass();
  CudaState& s = state();
  const char* api = api_name("cuMemAllocPitch_v2");
  Context* context = current_context(s);
  const PitchKey key{context ? context->device->ordinal : 0, width, element};
  std::size_t known = context ? known_pitch(key) : 0, bytes = 0;
  if (known && !__builtin_mul_overflow(known, height, &bytes)) {
    const CUresult answer = allocate(s, {BlockKind::device, kDeviceTraits, bytes, api}, pointer, pass);
    if (answer == kSuccess) *pitch = known;
    return answer;
  }
  if (__builtin_mul_overflow(as_driver_rounds(width), height, &bytes)) return pass();
  const CUresult answer =
      pass_on(s, {BlockKind::device, kDeviceTraits, bytes, api}, context, Unpooled::pitch_unknown, pass);
  if (answer != kSuccess) return answer;
  {
    Locked hold(pitch_lock);
    pitches().insert_or_assign(key, *pitch);
  }
  adopt_unpooled(s, {BlockKind::device, kDeviceTraits, *pitch * height, api}, static_cast<std::uintptr_t>(*pointer));
  return answer;
}

CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  if (!pointer || !bytes) return driver().cuMemAllocHost_v2(pointer, bytes);
  CudaState& s = state();
  const CUresult answer =
      allocate(s, {BlockKind::pinned, kPlainHostAllocation | numa_traits(), bytes, api_name("cuMemAllocHost_v2")},
               pointer, [&] { return driver().cuMemAllocHost_v2(pointer, bytes); });
  warn_of_much_pinned(s);
  return answer;
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  constexpr unsigned kKnownFlags = kHostAllocPortable | kHostAllocDeviceMap | kHostAllocWriteCombined;
  if (!pointer || !bytes || (flags & ~kKnownFlags)) return driver().cuMemHostAlloc(pointer, bytes, flags);
  CudaState& s = state();
  const CUresult answer = allocate(s, {BlockKind::pinned, flags | numa_traits(), bytes, api_name("cuMemHostAlloc")},
                                   pointer, [&] { return driver().cuMemHostAlloc(pointer, bytes, flags); });
  warn_of_much_pinned(s);
  return answer;
}

CUresult cuMemFreeHost(void* pointer) {
  CudaState& s = state();
  const auto pass = [&] { return driver().cuMemFreeHost(pointer); };
  Block* block = pointer ? s.blocks.table.find(reinterpret_cast<std::uintptr_t>(pointer)) : nullptr;
  if (block && block->kind == BlockKind::pinned) return free_block(s, block, "cuMemFreeHost", pass);
  return free_other(s, pointer, "cuMemFreeHost", pass);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return free_in_stream_order(pointer, stream, "cuMemFreeAsync", driver().cuMemFreeAsync);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
  return free_in_stream_order(pointer, stream, "cuMemFreeAsync_ptsz", driver().cuMemFreeAsync_ptsz);
}

}  // namespace hook
}  // namespace cistern::cuda
