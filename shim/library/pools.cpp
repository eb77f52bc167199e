// See pools.hpp.
//
//   allocate   -> the limit -> the kind's own allocation, which reuses what all pools of the kind gave back
//              -> a record by address; where limit or memory ran out, the program is asked to give something back, and
//                 again
//              -> with segments of its own: segments.hpp in place of the kind's own allocation
//   deallocate -> the record, claimed by one thread -> the kind's own deallocation -> the account
// The process's own pools have no records: what they are asked is what the kind is asked.
#include "shim/library/pools.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "shim/library/answers.hpp"
#include "shim/library/kind_memory.hpp"
#include "shim/library/pool_blocks.hpp"
#include "shim/process/log.hpp"
#include "stats/counters.hpp"
#include "stats/sink.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

// --- Requests
BlockRequest request_by(const cistern_pool_settings& of, const KindMemory& memory, std::size_t bytes,
                        std::size_t alignment) {
  return {&memory, bytes, alignment, of.flags, of.where, of.device, of.node, of.context};
}

BlockRequest request_of_pool(const Account& of, std::size_t bytes, std::size_t alignment) {
  return request_by(of.settings, *of.memory, bytes, alignment);
}

[[gnu::cold, gnu::noinline]] void say_no_segments(const cistern_pool_settings& settings, const KindMemory& memory) {
  StringSink line;
  line.print("cistern_pool_create: pool \"{}\" ({}): this memory cannot be cut into blocks; refused",
             settings.name ? settings.name : "pool", memory.name);
  warn_line(line.text());
}

bool is_right(const cistern_pool_settings& settings) {
  const KindMemory* const memory = memory_of(settings.kind);
  if (!memory || memory->of_context != (settings.context != nullptr)) return false;
  if (settings.memory != CISTERN_WHOLE_BLOCKS && settings.memory != CISTERN_SEGMENTS) return false;
  if (check(request_by(settings, *memory, 1, 0)) != CISTERN_OK) return false;
  const bool can = settings.memory == CISTERN_WHOLE_BLOCKS || memory->segments;
  if (!can) say_no_segments(settings, *memory);
  return can;
}

bool cuts_segments(const Account& account, const BlockRequest& request) {
  if (account.settings.memory != CISTERN_SEGMENTS) return false;
  const KindSegments& kind = *account.memory->segments;
  return !kind.may_cut || kind.may_cut(request);
}

double seconds_since(std::uint64_t born_ns) {
  const std::uint64_t now = nanoseconds_since_start();
  return static_cast<double>(now - std::min(now, born_ns)) / 1e9;
}

// --- Blocks
[[gnu::cold, gnu::noinline]] void say_refused(const char* api, const void* pointer, const char* what,
                                              const Account& owner) {
  StringSink line;
  line.print("{}({}): {} pool \"{}\" ({}); refused", api, pointer, what, owner.name, owner.memory->name);
  warn_line(line.text());
}

// A block that the program had found, and that only this thread may end.
struct Claimed {
  SeenBlock seen;
  std::uintptr_t address;
  std::uint64_t bytes;
  int device;
};

cistern_status allocate_once(Account& account, const cistern_pool* pool, const BlockRequest& request,
                             std::uint64_t instead_of, void** result) {
  Taken taken;
  PoolBlock* record = nullptr;
  cistern_status status = enter(account, pool, request.bytes, instead_of, &record);
  if (status != CISTERN_OK) return status;
  status = cuts_segments(account, request) ? account.segments.take(request, &taken) : take(request, &taken);
  if (status != CISTERN_OK) {
    take_out(account, request.bytes, record);
    return status;
  }
  keep_block(record, account, taken.address,
             {request.bytes, taken.base, taken.placed_bytes, taken.device, taken.segments});
  raise_peak(account.peak_bytes, account.live_bytes.load(std::memory_order_relaxed));
  if (taken.was_kept) account.hits.fetch_add(1, std::memory_order_relaxed);
  *result = reinterpret_cast<void*>(taken.address);
  return CISTERN_OK;
}

// Without a record, Cistern does not know where a block began or whether its pages were placed.
cistern_status allocate_of_process(const BlockRequest& request, void** result) {
  Taken taken;
  if (request.where & ~CISTERN_ON_DEVICE) return CISTERN_INVALID;
  const cistern_status status = take(request, &taken);
  if (status != CISTERN_OK) return status;
  if (taken.address == taken.base) {
    if (request.memory->queues) forget_stale_block(taken.address);
    *result = reinterpret_cast<void*>(taken.address);
    return CISTERN_OK;
  }
  request.memory->give(taken, nullptr, {});
  return CISTERN_INVALID;
}

cistern_status allocate_in(Account& account, cistern_pool* pool, const BlockRequest& request, void** block,
                           std::uint64_t instead_of = 0) {
  if (const cistern_status status = check(request); status != CISTERN_OK) {
    if (status == CISTERN_NO_MEMORY) account.failed.fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  if (account.is_default) return allocate_of_process(request, block);
  const cistern_pool_settings& settings = account.settings;
  for (;;) {
    const cistern_status status = allocate_once(account, pool, request, instead_of, block);
    if (status == CISTERN_OK) break;
    const bool ran_out = status == CISTERN_NO_MEMORY || status == CISTERN_LIMIT;
    if (!ran_out || !settings.out_of_memory || !settings.out_of_memory(pool, request.bytes, settings.user)) {
      account.failed.fetch_add(1, std::memory_order_relaxed);
      return status;
    }
  }
  if (settings.allocated) settings.allocated(pool, *block, request.bytes, settings.user);
  return CISTERN_OK;
}

// Nothing, and a line: it is no live block of the pool's.
std::optional<Claimed> claim(const char* api, const Account& account, const void* block) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const SeenBlock seen = see_block(address);
  if (seen.account && seen.account != &account) {
    say_refused(api, block, "a live block of", *seen.account);
    return {};
  }
  if (!seen.account || !claim_block(seen)) {
    say_refused(api, block, "no live block of", account);
    return {};
  }
  return Claimed{seen, address, seen.record->bytes, seen.record->device};
}

cistern_status give_claimed(Account& account, cistern_pool* pool, const Claimed& claimed, void* queue,
                            InOrder order = {}) {
  const cistern_pool_settings& settings = account.settings;
  const PoolBlock& record = *claimed.seen.record;
  if (settings.deallocated)
    settings.deallocated(pool, reinterpret_cast<void*>(claimed.address), claimed.bytes, settings.user);
  const Taken taken{.base = record.base,
                    .address = claimed.address,
                    .placed_bytes = record.placed_bytes,
                    .device = record.device,
                    .segments = record.segments};
  const cistern_status status =
      taken.segments ? account.segments.give(taken, queue, order) : account.memory->give(taken, queue, order);
  if (status != CISTERN_OK) return status;
  end_block(claimed.seen, claimed.address);
  leave(account, claimed.bytes, claimed.seen.record);
  return CISTERN_OK;
}

// The driver decides about a block without a record.
cistern_status deallocate_of_process(const Account& account, const char* api, void* block, void* queue,
                                     InOrder order = {}) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if (refuse_block_of_pool(api, block)) return CISTERN_INVALID;
  const KindMemory& memory = *account.memory;
  const int device = memory.device_of ? memory.device_of(block) : CISTERN_CURRENT;
  const cistern_status status = memory.give({.base = address, .address = address, .device = device}, queue, order);
  if (status != CISTERN_DRIVER || !memory.is_no_block || !memory.is_no_block(native)) return status;
  say_refused(api, block, "no live block of", account);
  return CISTERN_INVALID;
}

cistern_status deallocate_in(Account& account, cistern_pool* pool, const char* api, void* block, void* queue,
                             InOrder order = {}) {
  if (account.is_default) return deallocate_of_process(account, api, block, queue, order);
  const std::optional<Claimed> claimed = claim(api, account, block);
  if (!claimed) return CISTERN_INVALID;
  const cistern_status status = give_claimed(account, pool, *claimed, queue, order);
  if (status != CISTERN_OK) let_block_live(claimed->seen);
  return status;
}

// --- Resizing
// Takes back a block that the program never got. If the driver refuses it, it stays live memory of the kind, and not of
// the pool.
void take_back(Account& account, cistern_pool* pool, const char* api, void* block, void* queue) {
  constexpr int kTries = 3;
  const int code = native;
  cistern_status status = CISTERN_BUSY;
  for (int i = 0; i < kTries && status != CISTERN_OK; ++i) status = deallocate_in(account, pool, api, block, queue);
  native = code;
  if (status == CISTERN_OK || account.is_default) return;
  if (const std::optional<Claimed> claimed = claim(api, account, block)) {
    end_block(claimed->seen, claimed->address);
    leave(account, claimed->bytes, claimed->seen.record);
  }
}

cistern_status resize_of_process(Account& account, cistern_pool* pool, const char* api, void** block, std::size_t bytes,
                                 void* queue) {
  if (refuse_block_of_pool(api, *block)) return CISTERN_INVALID;
  const KindMemory& memory = *account.memory;
  if (memory.resize) return memory.resize(api, block, bytes);
  if (memory.of_context) return CISTERN_INVALID;  // its context is unknown
  const std::size_t before = memory.bytes_of(*block);
  if (!before) say_refused(api, *block, "no live block of", account);
  if (!before) return CISTERN_INVALID;
  void* moved = nullptr;
  cistern_status status = allocate_of_process(request_of_pool(account, bytes, 0), &moved);
  if (status != CISTERN_OK) return status;
  status = copy_contents(memory, moved, *block, std::min(bytes, before), 0, queue);
  if (status == CISTERN_OK) status = deallocate_of_process(account, api, *block, queue);
  if (status == CISTERN_OK)
    *block = moved;
  else
    take_back(account, pool, api, moved, queue);
  return status;
}

// No other thread may end the block while its contents move.
cistern_status resize(Account& account, cistern_pool* pool, const char* api, void** block, std::size_t bytes,
                      void* queue) {
  const KindMemory& memory = *account.memory;
  BlockRequest request = request_of_pool(account, bytes, 0);
  if (memory.queues && memory.queues->needs_queue && !queue) return CISTERN_INVALID;
  const std::optional<Claimed> claimed = claim(api, account, *block);
  if (!claimed) return CISTERN_INVALID;
  void* moved = nullptr;
  cistern_status status = CISTERN_OK;
  if (claimed->bytes != bytes) {
    if (claimed->device >= 0) request.where |= CISTERN_ON_DEVICE, request.device = claimed->device;
    status = allocate_in(account, pool, request, &moved, claimed->bytes);
    if (status == CISTERN_OK)
      status =
          copy_contents(memory, moved, *block, std::min<std::uint64_t>(bytes, claimed->bytes), claimed->device, queue);
    if (status == CISTERN_OK) status = give_claimed(account, pool, *claimed, queue);
  }
  if (status == CISTERN_OK && moved) {
    *block = moved;
    return status;
  }
  let_block_live(claimed->seen);
  if (moved) take_back(account, pool, api, moved, queue);
  return status;
}

}  // namespace

cistern_status pool_create(const cistern_pool_settings* settings, cistern_pool** pool) {
  native = 0;
  if (pool) *pool = nullptr;
  cistern_pool_settings own{};
  if (!pool || !read_sized(own, settings, offsetof(cistern_pool_settings, bytes_max)) || !is_right(own))
    return CISTERN_INVALID;
  *pool = new_pool(own);
  return *pool ? CISTERN_OK : CISTERN_NO_MEMORY;
}

cistern_status pool_destroy(cistern_pool* pool) {
  native = 0;
  PoolSegments::Ended ended;
  return end_pool(pool, &ended);
}

cistern_status pool_default(cistern_kind kind, cistern_pool** pool) {
  native = 0;
  if (!pool) return CISTERN_INVALID;
  *pool = default_pool(kind);
  return *pool ? CISTERN_OK : CISTERN_INVALID;
}

cistern_status pool_allocate(cistern_pool* pool, size_t bytes, size_t alignment, void** block) {
  const void* const caller = __builtin_return_address(0);
  const CalledFrom for_host(caller, Calls::frequent), for_others(caller, Calls::occasional);
  native = 0;
  if (block) *block = nullptr;
  Account* const account = account_of("cistern_pool_allocate", pool);
  if (!account || !block) return CISTERN_INVALID;
  return allocate_in(*account, pool, request_of_pool(*account, bytes, alignment), block);
}

cistern_status pool_allocate_as(cistern_pool* pool, const cistern_request* request, void** block) {
  const void* const caller = __builtin_return_address(0);
  const CalledFrom for_host(caller, Calls::frequent), for_others(caller, Calls::occasional);
  native = 0;
  if (block) *block = nullptr;
  Account* const account = account_of("cistern_pool_allocate_as", pool);
  cistern_request own{};
  if (!account || !block || !read_sized(own, request, offsetof(cistern_request, alignment))) return CISTERN_INVALID;
  BlockRequest filled = request_of_pool(*account, own.bytes, own.alignment);
  if (own.flags) filled.flags = own.flags;
  if (own.where) filled.where = own.where, filled.device = own.device, filled.node = own.node;
  if (own.context && own.context != filled.context) {
    if (!account->is_default || !filled.memory->of_context) return CISTERN_INVALID;
    filled.context = own.context;
  }
  return allocate_in(*account, pool, filled, block);
}

cistern_status pool_reallocate(cistern_pool* pool, void** block, size_t bytes, void* queue) {
  constexpr char kApi[] = "cistern_pool_reallocate";
  const void* const caller = __builtin_return_address(0);
  const CalledFrom for_host(caller, Calls::frequent), for_others(caller, Calls::occasional);
  native = 0;
  Account* const account = account_of(kApi, pool);
  if (!account || !block || !bytes) return CISTERN_INVALID;
  if (!*block) return allocate_in(*account, pool, request_of_pool(*account, bytes, 0), block);
  const auto resized = account->is_default ? resize_of_process : resize;
  return resized(*account, pool, kApi, block, bytes, queue);
}

cistern_status pool_reserve(cistern_pool* pool, size_t bytes, size_t count) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  Account* const account = account_of("cistern_pool_reserve", pool);
  if (!account) return CISTERN_INVALID;
  const BlockRequest request = request_of_pool(*account, bytes, 0);
  const cistern_status status = check(request);
  if (status != CISTERN_OK) return status;
  return cuts_segments(*account, request) ? account->segments.reserve(request, count) : reserve(request, count);
}

cistern_status pool_deallocate(cistern_pool* pool, void* block, void* queue) {
  constexpr char kApi[] = "cistern_pool_deallocate";
  const void* const caller = __builtin_return_address(0);
  const CalledFrom for_host(caller, Calls::frequent), for_others(caller, Calls::occasional);
  native = 0;
  Account* const account = account_of(kApi, pool);
  if (!account) return CISTERN_INVALID;
  return block ? deallocate_in(*account, pool, kApi, block, queue) : CISTERN_OK;
}

// --- In the order of a stream
cistern_status pool_allocate_on(cistern_pool* pool, size_t bytes, int device, void* stream, void** block) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  if (block) *block = nullptr;
  Account* const account = account_of("cistern_pool_allocate_on", pool);
  if (!account || !block || !account->memory->in_order) return CISTERN_INVALID;
  BlockRequest request = request_of_pool(*account, bytes, 0);
  if (device != CISTERN_CURRENT) request.where |= CISTERN_ON_DEVICE, request.device = device;
  request.order = {true, stream};
  return allocate_in(*account, pool, request, block);
}

cistern_status pool_deallocate_on(cistern_pool* pool, void* block, void* stream) {
  constexpr char kApi[] = "cistern_pool_deallocate_on";
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  Account* const account = account_of(kApi, pool);
  if (!account || !account->memory->in_order) return CISTERN_INVALID;
  return block ? deallocate_in(*account, pool, kApi, block, nullptr, {true, stream}) : CISTERN_OK;
}

cistern_status pool_get_statistics(cistern_pool* pool, cistern_pool_statistics* statistics) {
  native = 0;
  const bool has_room = clear_sized(statistics);
  Account* const account = account_of("cistern_pool_get_statistics", pool);
  if (!account || !has_room) return CISTERN_INVALID;
  cistern_pool_statistics all{};
  if (account->is_default) {
    cistern_figures of{};
    of.struct_bytes = sizeof of;
    get_figures(account->settings.kind, -1, &of);
    all = {0,
           of.allocations,
           of.frees,
           of.failed,
           of.live_blocks,
           of.live_bytes,
           of.peak_bytes,
           of.allocated_bytes,
           0,
           of.pool_hits,
           of.seconds,
           0,
           0,
           0,
           0,
           0};
  } else {
    const PoolSegments::Figures segments = account->segments.figures();
    const Locked hold(account->lock);
    all = {0,
           account->allocations,
           account->frees,
           account->failed,
           account->live_blocks,
           account->live_bytes,
           account->peak_bytes,
           account->allocated_bytes,
           account->settings.bytes_max,
           account->hits,
           seconds_since(account->born_ns),
           0,
           0,
           segments.segments,
           segments.bytes,
           segments.made};
  }
  if (all.seconds > 0) {
    all.allocations_per_second = static_cast<double>(all.allocations) / all.seconds;
    all.bytes_per_second = static_cast<double>(all.allocated_bytes) / all.seconds;
  }
  write_sized(statistics, all);
  return CISTERN_OK;
}

cistern_status pool_visit(cistern_pool* pool, int (*visit)(void* block, size_t bytes, void* user), void* user) {
  native = 0;
  const Account* const account = account_of("cistern_pool_visit", pool);
  if (!account || !visit) return CISTERN_INVALID;
  if (account->is_default) {
    struct Asked {
      int (*visit)(void*, size_t, void*);
      void* user;
    } asked{visit, user};
    return library::visit(
        account->settings.kind,
        [](const cistern_block* block, void* context) {
          const auto& [each, user] = *static_cast<const Asked*>(context);
          return each(block->address, block->bytes, user);
        },
        &asked);
  }
  struct Live {
    std::uintptr_t address;
    std::uint64_t bytes;
  };
  struct Found {
    const Account* account;
    Vector<Live> live;
  } found{account, {}};
  visit_pool_blocks(
      [](PoolBlock& block, void* context) {
        auto& [account, live] = *static_cast<Found*>(context);
        if (block.account.load() == account && block.is_live()) live.push_back({block.address.load(), block.bytes});
      },
      &found);
  for (const Live& block : found.live)
    if (see_block(block.address).account == account && visit(reinterpret_cast<void*>(block.address), block.bytes, user))
      break;
  return CISTERN_OK;
}

cistern_status pool_visit_segments(cistern_pool* pool,
                                   int (*visit)(void* segment, size_t bytes, int device, void* user), void* user) {
  native = 0;
  Account* const account = account_of("cistern_pool_visit_segments", pool);
  if (!account || !visit) return CISTERN_INVALID;
  for (const PoolSegments::Segment& segment : account->segments.list())
    if (visit(reinterpret_cast<void*>(segment.address), segment.bytes, segment.device, user)) break;
  return CISTERN_OK;
}

int native_error() { return native; }

bool refuse_block_of_pool(const char* api, const void* block) {
  if (!any_pool.load(std::memory_order_relaxed) || !block) return false;
  const Account* const owner = see_block(reinterpret_cast<std::uintptr_t>(block)).account;
  if (owner) say_refused(api, block, "a live block of", *owner);
  return owner;
}

void add_pools(Snapshot& snapshot) {
  visit_accounts(
      [](Account& account, void* pools) {
        const bool is_destroyed = !(account.generation.load() & 1);
        const Locked hold(account.lock);
        static_cast<Vector<LibraryPoolFigures>*>(pools)->push_back(
            {account.name, account.memory->name, is_destroyed, account.allocations, account.frees, account.failed,
             account.live_blocks, account.live_bytes, account.peak_bytes, account.allocated_bytes,
             account.settings.bytes_max});
      },
      &snapshot.library_pools);
}

void pools_before_fork() {
  accounts_before_fork();
  blocks_before_fork();
}

void pools_after_fork_in_parent() {
  blocks_after_fork();
  accounts_after_fork();
}

void pools_after_fork_in_child() {
  pools_after_fork_in_parent();
  visit_accounts(
      [](Account& account, void*) {
        account.begin_anew(0);
        account.segments.after_fork_in_child();
      },
      nullptr);
  // Blocks that other threads were ending during the fork have no owner now.
  visit_pool_blocks(
      [](PoolBlock& block, void*) {
        if (!block.is_live()) return;
        Account& account = *block.account.load();
        ++account.live_blocks;
        account.peak_bytes = account.live_bytes.fetch_add(block.bytes) + block.bytes;
      },
      nullptr);
}

}  // namespace cistern::library
