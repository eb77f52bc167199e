// Device and pinned memory from the pools. Most blocks are whole driver allocations, which are recycled; small pinned
// blocks are pieces of slabs, and by choice device blocks lie in a range. Requests that the driver alone can answer
// rightly are passed on and counted as unpooled, with the reason.
//
//   allocate -> why_not_pooled (pooled.hpp): no reason
//                 -> allocate_pooled -> take_from_range, with CISTERN_DEVICE_POOL=ranges
//                                    -> take_in_order, for a request that names its stream
//                                    -> acquire (pool/acquire.hpp): a kept chunk of the same size, else a larger one
//                                         -> acquire_new: one from the driver, for which kept chunks make room
//                                    -> hand_out: notes the request in the block, and counts it
//            -> a reason
//                 -> pass_on: the program's own call
//                 -> adopt_unpooled: a block that will really be freed
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>

#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/hooks/pooled.hpp"
#include "shim/cuda/hooks/stream_order.hpp"
#include "shim/process/log.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/format.hpp"
#include "stats/sink.hpp"

namespace cistern::cuda {
namespace {

// A device chunk may be a quarter larger than the request, a pinned one an eighth. For device chunks this holds as long
// as a quarter of the device is free, and all live chunks together waste at most a 64th of it. A program that fills the
// device must not run out of memory earlier than without Cistern.
constexpr std::uint64_t kNearDivisor = 4, kNearPinnedDivisor = 8, kWasteDivisor = 64;

// The program's request.
struct Request {
  BlockKind kind;
  std::uint64_t traits, bytes;
  const char* api;
  std::optional<CUstream> on = {};  // the only stream whose work will use it, as far as is known
  bool is_current = true;           // the context; else it is made current for calls of the driver
};

void account_birth(CudaState& s, Block* block, bool pool_hit, std::uint64_t born_ns) {
  const CountedBlock born = as_counted(*block);
  const std::uint64_t reserved = s.pools.reserved_bytes(block->sort());
  Share& share = s.pools.source().share_of(block->sort());
  const std::uint64_t rounded = as_driver_rounds(born.bytes);
  KindCounters& counted = s.account.counters_of(block->kind, block->context);
  Locked hold(counted.lock);
  if (block->kind == BlockKind::device) s.account.live_on_devices.rise(born.bytes);
  bump(share.live_bytes, rounded);
  bump(share.waste_bytes, block->bytes - rounded);
  if (block->range) bump(share.in_range_bytes, block->bytes);
  share.proportion.note_live(read(share.live_bytes));
  counted.block_born_locked(born, pool_hit, reserved, born_ns);
}

void hand_out(CudaState& s, Block* block, const Request& request, bool hit, std::uint64_t now_ns = coarse_now_ns()) {
  block->births.store(block->births.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  block->requested = request.bytes;
  block->api = request.api;
  block->site = site_of_call(s, request.api);
  block->freed_site = 0;
  const std::uint64_t born_ns = since_start(now_ns);
  block->born_ns = born_ns;
  block->recycled |= hit;
  block->buffer_id = 0;
  block->syncs_memops.store(false, std::memory_order_relaxed);
  block->further_streams.store(0, std::memory_order_relaxed);
  account_birth(s, block, hit, born_ns);
  record_birth(*block);
  block->state.store(BlockState::live, std::memory_order_release);
}

// Makes a block for memory that the program's own call got. It has exactly this size, and its free is the driver's.
void adopt_unpooled(CudaState& s, const Request& request, Context* context, std::uintptr_t address) {
  if (!context || !address) return;
  Block* block = s.pools.source().adopt({context, request.traits, as_driver_rounds(request.bytes)}, address);
  block->unpooled = true;
  hand_out(s, block, request, false);
}

std::uint64_t device_total(CudaState& s, Device& device) {
  if (!device.total_bytes.load(std::memory_order_relaxed)) sample_device_memory(s, device);
  return device.total_bytes.load(std::memory_order_relaxed);
}

// New chunks have the size that the driver would take. Small pinned ones have the size of their class: such pieces
// share slabs.
std::uint64_t chunk_bytes(const Request& request) {
  const bool piece = request.kind == BlockKind::pinned && request.bytes <= kSmallPinnedBytes;
  return piece ? chunk_bytes_for(request.bytes) : as_driver_rounds(request.bytes);
}

// The largest chunk that may be given for a request.
std::uint64_t near_bytes_max(CudaState& s, const Request& request, Context* context, std::uint64_t bytes) {
  if (request.kind == BlockKind::pinned) return bytes + bytes / kNearPinnedDivisor;
  Device& device = *context->device;
  const std::uint64_t near = bytes + bytes / kNearDivisor;
  const std::uint64_t all = device_total(s, device), limit = options().device_limit.of(all);
  const std::uint64_t total = limit ? std::min(limit, all) : all;
  if (taken_bytes(device) > total / 4 * 3) return bytes;
  const std::uint64_t waste = device.share.waste_bytes.load(std::memory_order_relaxed),
                      waste_max = total / kWasteDivisor;
  return waste >= waste_max ? bytes : std::min(near, bytes + (waste_max - waste));
}

// The device whose limit the request has to keep; null for pinned memory, which belongs to no device.
Device* limited_by(BlockKind kind, Context* context) {
  return kind == BlockKind::device ? device_of(context) : nullptr;
}

[[gnu::noinline]] Acquired<Block*, CUresult> acquire_new(CudaState& s, const Request& request, Context* context,
                                                         std::uint64_t bytes) {
  s.pools.source().release_postponed();
  sample_device_memory(s, *context->device);
  Acquired<Block*, CUresult> acquired{nullptr, kOutOfMemory, false};
  acquired.error = with_room(s, limited_by(request.kind, context), bytes, [&] {
    if (request.kind == BlockKind::pinned) {
      acquired = s.pools.source().acquire({context, request.traits, bytes});
      return acquired.error;
    }
    GranuleMeasurement measurement(s, *context->device, bytes);
    acquired = s.pools.source().acquire({context, request.traits, bytes});
    if (acquired.ok) measurement.allocated();
    return acquired.error;
  });
  if (acquired.ok) s.pools.source().share_of(acquired.chunk->sort()).proportion.note_new(bytes);
  return acquired;
}

// A request with the key of the pool, as acquire() wants it (PoolRequest in pool/acquire.hpp).
struct PooledRequest {
  CudaState& s;
  const Request& request;
  Context* context;
  PoolKey key;

  // A context that is current already makes no call.
  std::optional<Entered> enter() const {
    return request.is_current ? std::nullopt : std::optional<Entered>(std::in_place, s.functions, context->handle());
  }
  std::uint64_t bytes_max() const {
    const bool asks = request.kind == BlockKind::device && !context->device->total_bytes.load();
    const auto entered = asks ? enter() : std::nullopt;
    return near_bytes_max(s, request, context, key.bytes);
  }
  bool is_there(Block* block) const {
    if (block->context_is_there()) [[likely]]
      return true;
    s.pools.source().forget(block);  // it came back to the pool while its context was ending
    return false;
  }
  Acquired<Block*, CUresult> acquire_new() const {
    const auto entered = enter();
    return cuda::acquire_new(s, request, context, key.bytes);
  }
};

// The program's answer if neither the pool nor the driver had the memory. It is counted, and said where that helps.
CUresult failed(CudaState& s, const Request& request, const Context* context, CUresult answer) {
  add(s.account.counters_of(request.kind, context).failed);
  record_failed(s, recorded(request.kind, context), request.api, request.bytes);
  if (note(s, answer) == kOutOfMemory)
    report_out_of_memory(s, request.api, request.kind == BlockKind::device ? Family::device : Family::pinned,
                         context ? context->device->ordinal : 0, request.bytes);
  return answer;
}

// Takes a block that went back on the same stream; null: none fits. While a stream captures it takes none: the graph
// would use the block again later.
Block* take_in_order(CudaState& s, PooledRequest pooled, CUstream stream, std::uint64_t now_ns) {
  pooled.key.traits = s.captures.any() ? 0 : stream_traits(s, pooled.context, stream);
  return pooled.key.traits ? take_kept(s.pools.device(), pooled, now_ns).value_or(nullptr) : nullptr;
}

// From the context's range; null: a whole allocation serves the request. Where the range fails the driver has the last
// word, whose errors the program knows.
Block* take_from_range(CudaState& s, const PooledRequest& pooled, std::uint64_t now_ns, bool* hit) {
  const Request& request = pooled.request;
  DeviceRanges& all = s.pools.ranges();
  if (request.kind != BlockKind::device || !all.asked_for()) [[likely]]
    return nullptr;
  const auto entered = pooled.enter();
  const Inside inside(*pooled.context);
  DeviceRange* const range = pooled.context->ending.load() ? nullptr : all.of(*pooled.context);
  if (!range || range->is_closed() || (all.any_whole() && all.wants_whole(site_of_call(s, request.api))))
    return nullptr;
  *hit = true;
  Block* const kept = s.pools.take_of_thread(pooled.key);
  if (kept && pooled.is_there(kept)) return kept;
  const auto order =
      request.on && !s.captures.any() ? stream_traits(s, pooled.context, *request.on) : ranges::kAnyOrder;
  const DeviceRange::Given given = range->acquire(pooled.key.bytes, order);
  *hit = given.hit;
  if (!given.block) all.note_refused(*range, given.error);
  if (!given.hit && s.gate.open()) range->keep_limits(now_ns);
  return given.block;
}

CUresult allocate_pooled(CudaState& s, const Request& request, Context* context, std::uintptr_t* address) {
  const PooledRequest pooled{
      s, request, context, {reinterpret_cast<std::uintptr_t>(context), request.traits, chunk_bytes(request)}};
  const std::uint64_t now_ns = coarse_now_ns();
  bool range_hit = false;
  if (Block* const block = take_from_range(s, pooled, now_ns, &range_hit)) {
    if (!range_hit) add(s.account.counters_of(request.kind, context).pool_misses);
    *address = block->address.load(std::memory_order_relaxed);
    hand_out(s, block, request, range_hit, now_ns);
    return kSuccess;
  }
  if (request.on)
    if (Block* const block = take_in_order(s, pooled, *request.on, now_ns)) {
      *address = block->address.load(std::memory_order_relaxed);
      hand_out(s, block, request, true, now_ns);
      return kSuccess;
    }
  const auto [got, hit] = acquire(s.pools.of(request.kind), pooled, now_ns);
  if (!got.ok) [[unlikely]]
    return failed(s, request, context, got.error);
  if (!hit) add(s.account.counters_of(request.kind, context).pool_misses);
  *address = got.chunk->address.load(std::memory_order_relaxed);
  hand_out(s, got.chunk, request, hit, now_ns);
  return kSuccess;
}

// Makes the program's own call. If it is out of memory, kept blocks go back to the driver, and it is made again.
template <class Pass>
CUresult pass_on(CudaState& s, const Request& request, Context* context, Unpooled reason, Pass pass) {
  const CUresult answer = with_room(s, limited_by(request.kind, context), request.bytes, pass);
  if (answer != kSuccess) return failed(s, request, context, answer);
  KindCounters& counted = s.account.counters_of(request.kind, context);
  counted.count_unpooled(reason);
  add(counted.driver_allocs);
  if (context && request.is_current) sample_device_memory(s, *context->device);
  return kSuccess;
}

// `pass` makes the program's own call; `result` is where it leaves the address.
template <class Pass, class Address>
CUresult allocate_in(CudaState& s, const Request& request, Context* context, Address* result, Pass pass) {
  const auto reason = why_not_pooled(s, request.kind, request.bytes, context);
  if (!reason) {
    std::uintptr_t address = 0;
    const CUresult answer = allocate_pooled(s, request, context, &address);
    if (answer == kSuccess) *result = (Address)address;
    return answer;
  }
  const CUresult answer = pass_on(s, request, context, *reason, pass);
  if (answer == kSuccess) adopt_unpooled(s, request, context, (std::uintptr_t)*result);
  return answer;
}

template <class Pass, class Address>
CUresult allocate(CudaState& s, const Request& request, Address* result, Pass pass) {
  return allocate_in(s, request, s.contexts.current(), result, pass);
}

CUresult allocate_elsewhere(Context& in, CUdeviceptr* pointer, std::size_t bytes, std::optional<CUstream> on) {
  CudaState& s = state();
  const auto pass = [&] {
    const Entered entered(s.functions, in.handle());
    return entered ? driver().cuMemAlloc_v2(pointer, bytes) : kInvalidContext;
  };
  if (!bytes) return pass();
  return allocate_in(s, {BlockKind::device, kDeviceTraits, bytes, api_name("cuMemAlloc_v2"), on, false}, &in, pointer,
                     pass);
}

// --- Pinned memory

// The calling thread's NUMA node, as traits. Most machines have one node, for which no system call is made.
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
  static constinit std::atomic<bool> has_warned{false};
  std::uint64_t ram = known.load(std::memory_order_relaxed);
  if (!ram) known.store(ram = machine_memory_bytes());
  const std::uint64_t pinned = s.pools.source().pinned_reserved_bytes.load(std::memory_order_relaxed);
  if (!ram || pinned <= ram / 4) [[likely]]
    return;
  if (has_warned.exchange(true)) return;
  Uncounted uncounted;
  StringSink line;
  line.print("{} of host memory is pinned, more than a quarter of the machine's {}", human_bytes(pinned),
             human_bytes(ram));
  warn_line(line.text());
}

// --- Pitch: a pitched allocation is a linear one whose pitch the driver chooses. It chooses the same pitch for the
// same width, so the first call is passed on and the next ones use its pitch.

struct PitchKey {
  int device;
  std::size_t width;
  unsigned element;
  bool operator==(const PitchKey&) const = default;
};
struct PitchHash {
  std::size_t operator()(const PitchKey& key) const {
    return (key.width * 64 + key.element * 1024ull + static_cast<unsigned>(key.device)) * 0x9E3779B97F4A7C15ull >> 16;
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

// --- Blocks that the library reserves (cistern_pool_reserve)

CUresult reserve(const Request& request, std::size_t count) {
  CudaState& s = state();
  Context* const context = s.contexts.current();
  if (why_not_pooled(s, request.kind, request.bytes, context)) return context ? kNotSupported : kInvalidContext;
  for (std::size_t i = 0; i < count; ++i) {
    const auto acquired = acquire_new(s, request, context, chunk_bytes(request));
    if (!acquired.ok) return note(s, acquired.error);
    const Sort sort = acquired.chunk->sort();
    Proportion& proportion = s.pools.source().share_of(sort).proportion;
    proportion.note_back(acquired.chunk->bytes, true);  // asked for, so it is kept as what was live
    s.pools.give(acquired.chunk, {});
    proportion.note_live(s.pools.reserved_bytes(sort));
  }
  return kSuccess;
}

}  // namespace

CUresult reserve_device(std::size_t bytes, std::size_t count) {
  return reserve({BlockKind::device, kDeviceTraits, bytes, ""}, count);
}

void hand_out_part(CudaState& s, Block* block, std::uint64_t bytes, const char* api, bool hit) {
  if (!hit) add(s.account.counters_of(block->kind, block->context).pool_misses);
  hand_out(s, block, {block->kind, block->traits, bytes, api}, hit);
}

void pitch_before_fork() { pitch_lock.lock_for_fork(); }
void pitch_after_fork() { pitch_lock.unlock_after_fork(); }

CUresult allocate_device(CUdeviceptr* pointer, std::size_t bytes) {
  if (!pointer || !bytes) return driver().cuMemAlloc_v2(pointer, bytes);
  CudaState& s = state();
  return allocate(s, {BlockKind::device, kDeviceTraits, bytes, api_name("cuMemAlloc_v2")}, pointer,
                  [&] { return driver().cuMemAlloc_v2(pointer, bytes); });
}

CUresult allocate_device(Context& in, CUdeviceptr* pointer, std::size_t bytes) {
  return allocate_elsewhere(in, pointer, bytes, {});
}

// A block that was allocated while its stream captured is never given again: the graph has its address.
CUresult allocate_device_on(Context& in, CUstream stream, CUdeviceptr* pointer, std::size_t bytes) {
  const CUresult answer = allocate_elsewhere(in, pointer, bytes, stream);
  CudaState& s = state();
  if (answer != kSuccess || !asks_if_captured(s, stream, false)) return answer;
  const Entered entered(s.functions, in.handle());
  if (may_be_captured(s, stream, false))
    if (Block* const block = s.blocks.table.find(*pointer)) block->marked.store(true, std::memory_order_relaxed);
  return answer;
}

CUresult reserve_pinned(std::size_t bytes, unsigned flags, std::size_t count) {
  return reserve({BlockKind::pinned, flags | numa_traits(), bytes, ""}, count);
}

namespace hook {

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) { return allocate_device(pointer, bytes); }

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned element) {
  const auto pass = [&] { return driver().cuMemAllocPitch_v2(pointer, pitch, width, height, element); };
  if (!pointer || !pitch || !width || !height) return pass();
  CudaState& s = state();
  const char* api = api_name("cuMemAllocPitch_v2");
  Context* context = s.contexts.current();
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
  adopt_unpooled(s, {BlockKind::device, kDeviceTraits, *pitch * height, api}, context,
                 static_cast<std::uintptr_t>(*pointer));
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

}  // namespace hook
}  // namespace cistern::cuda
