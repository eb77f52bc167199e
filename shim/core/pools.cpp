// See pools.hpp. A pool's handle is a number, not an address: one that is out of use is told from all others, and
// nothing is read through it. Accounts and blocks have records that are used again, and never given back.
//
//   allocate   -> the limit -> the kind's own allocation (which reuses what all pools of the kind gave back) -> a
//   record
//                 by address; where limit or memory ran out, the program is asked to give something back, and again
//   deallocate -> the record, claimed by one thread -> the kind's own deallocation -> the account
#include "shim/core/pools.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <new>

#include "pool/base/address_table.hpp"
#include "shim/core/library.hpp"
#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/next.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/opencl/buffers.hpp"
#include "shim/opencl/next.hpp"
#include "shim/process/log.hpp"
#include "stats/counters.hpp"
#include "stats/sink.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

constexpr const char* kKindNames[] = {"host", "opencl", "device", "pinned", "managed"};
constexpr unsigned kAttachGlobal = 1;

struct Account {
  // Odd: in use. Each use has another number.
  std::atomic<std::uint32_t> generation{0};
  std::atomic<bool> closes{false};
  std::uint32_t index = 0;
  Account* next_unused = nullptr;
  char name[64] = {};
  cistern_pool_settings settings{};
  std::atomic<std::uint64_t> allocations{0}, frees{0}, failed{0}, live_blocks{0}, live_bytes{0}, peak_bytes{0},
      allocated_bytes{0};

  void begin_anew() {
    for (auto* const count : {&allocations, &frees, &failed, &live_blocks, &live_bytes, &peak_bytes, &allocated_bytes})
      *count = 0;
    closes = false;
  }
};

// In two bits of a word; the others number the births of the record.
enum BlockState : std::uint64_t { kGone, kLive, kGoing, kStateMask = 3, kBirth = 4 };

struct PoolBlock {
  std::atomic<std::uintptr_t> address{0};
  std::atomic<std::uint64_t> state{kGone};

  bool is_live() const { return (state.load() & kStateMask) == kLive; }
  std::atomic<Account*> account{nullptr};
  std::atomic<std::uint64_t> bytes{0};
  std::uintptr_t base = 0;  // what the kind gave; `address` may lie behind it, to be aligned
  PoolBlock* next_unused = nullptr;
};

constexpr unsigned kPageBits = 10, kIndexBits = 20;
constinit std::atomic<Account*> pages[1 << (kIndexBits - kPageBits)] = {};
constinit Lock accounts_lock;  // for making and ending one
constinit std::uint32_t accounts_made = 0;
constinit Account* accounts_unused = nullptr;

constinit AddressTable<PoolBlock> blocks;
constinit Lock unused_lock;
constinit PoolBlock* blocks_unused = nullptr;

[[gnu::tls_model("initial-exec")]] constinit thread_local int native = 0;

// --- Handles
cistern_pool* handle_of(const Account& account, std::uint32_t generation) {
  return reinterpret_cast<cistern_pool*>((std::uint64_t{generation} << kIndexBits | account.index) << 3 | 1);
}

Account* account_at(std::uint32_t index) {
  Account* const page = pages[index >> kPageBits].load(std::memory_order_acquire);
  return page ? &page[index & ((1u << kPageBits) - 1)] : nullptr;
}

// Null, and a line: no pool, or not any more.
Account* account_of(const char* api, const cistern_pool* pool) {
  const auto word = reinterpret_cast<std::uintptr_t>(pool);
  if ((word & 7) == 1 && word >> 3 >> kIndexBits <= UINT32_MAX) {
    const std::uint64_t number = word >> 3;
    const auto generation = static_cast<std::uint32_t>(number >> kIndexBits);
    Account* const account = account_at(number & ((1u << kIndexBits) - 1));
    if (account && (generation & 1) && account->generation.load(std::memory_order_acquire) == generation)
      return account;
  }
  StringSink line;
  line.print("{}({}): no pool, or destroyed already; refused", api, static_cast<const void*>(pool));
  warn_line(line.text());
  return nullptr;
}

// --- The kinds
cistern_status status_of(cuda::CUresult answer) {
  if (answer == cuda::kSuccess) return CISTERN_OK;
  native = answer;
  if (answer == cuda::kOutOfMemory) return CISTERN_NO_MEMORY;
  return answer == cuda::kNoDevice ? CISTERN_NO_DRIVER : CISTERN_DRIVER;
}

cistern_status status_of_opencl(opencl::cl_int answer) {
  if (answer == opencl::kSuccess) return CISTERN_OK;
  native = answer;
  const bool memory = answer == opencl::kMemObjectAllocationFailure || answer == opencl::kOutOfResources ||
                      answer == opencl::kOutOfHostMemory;
  return memory ? CISTERN_NO_MEMORY : CISTERN_DRIVER;
}

cistern_status take(const cistern_pool_settings& of, std::size_t bytes, std::size_t alignment, std::uintptr_t* base) {
  if (of.kind == CISTERN_HOST) {
    *base = reinterpret_cast<std::uintptr_t>(library::allocate(bytes, alignment));
    return *base ? CISTERN_OK : CISTERN_NO_MEMORY;
  }
  if (of.kind == CISTERN_OPENCL) {
    if (!opencl::next().clCreateBuffer) return CISTERN_NO_DRIVER;
    opencl::cl_int error = opencl::kSuccess;
    auto* const context = reinterpret_cast<opencl::cl_context>(of.context);
    opencl::make_context_known(context);
    *base = reinterpret_cast<std::uintptr_t>(opencl::create_buffer({context, of.flags, bytes}, nullptr, &error));
    return status_of_opencl(error);
  }
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  const auto flags = static_cast<unsigned>(of.flags);
  if (of.kind == CISTERN_PINNED) {
    void* memory = nullptr;
    const cuda::CUresult answer = cuda::hook::cuMemHostAlloc(&memory, bytes, flags);
    *base = reinterpret_cast<std::uintptr_t>(memory);
    return status_of(answer);
  }
  cuda::CUdeviceptr memory = 0;
  const cuda::CUresult answer = of.kind == CISTERN_DEVICE
                                    ? cuda::allocate_device(&memory, bytes)
                                    : cuda::hook::cuMemAllocManaged(&memory, bytes, flags ? flags : kAttachGlobal);
  *base = static_cast<std::uintptr_t>(memory);
  return status_of(answer);
}

cistern_status give(cistern_kind kind, std::uintptr_t base, void* queue) {
  if (kind == CISTERN_HOST)
    return host::free_checked(reinterpret_cast<void*>(base), "cistern_pool_deallocate") ? CISTERN_OK : CISTERN_INVALID;
  if (kind == CISTERN_OPENCL) {
    auto* const buffer = reinterpret_cast<opencl::cl_mem>(base);
    if (queue) opencl::note_last_queue(buffer, reinterpret_cast<opencl::cl_command_queue>(queue));
    return status_of_opencl(opencl::release_memory(buffer));
  }
  return status_of(kind == CISTERN_PINNED ? cuda::hook::cuMemFreeHost(reinterpret_cast<void*>(base))
                                          : cuda::free_device(static_cast<cuda::CUdeviceptr>(base)));
}

// What the kind's own blocks are aligned to at least; it gives other ones by itself where there is no limit.
std::size_t natural_alignment(cistern_kind kind) {
  constexpr std::size_t kDevice = 256, kPinned = 64;
  return kind == CISTERN_HOST ? SIZE_MAX : kind == CISTERN_PINNED ? kPinned : kDevice;
}

// --- Accounts
// A block that does not come to be is taken out again. The pool may be destroyed meanwhile: either that sees the block,
// or we see that it goes on, and wait for what becomes of it.
cistern_status enter(Account& account, const cistern_pool* pool, std::uint64_t bytes) {
  account.live_blocks.fetch_add(1);
  if (account.closes.load()) {
    const Locked decided(accounts_lock);
  }
  const std::uint64_t most = account.settings.bytes_max ? account.settings.bytes_max : UINT64_MAX;
  std::uint64_t live = account.live_bytes.load();
  cistern_status status = handle_of(account, account.generation.load()) == pool ? CISTERN_OK : CISTERN_INVALID;
  do {
    if (status == CISTERN_OK && (bytes > most || live > most - bytes)) status = CISTERN_LIMIT;
  } while (status == CISTERN_OK && !account.live_bytes.compare_exchange_weak(live, live + bytes));
  if (status != CISTERN_OK) account.live_blocks.fetch_sub(1);
  return status;
}

void leave(Account& account, std::uint64_t bytes) {
  account.live_bytes.fetch_sub(bytes);
  account.live_blocks.fetch_sub(1);
}

// --- Blocks
PoolBlock* new_block() {
  const Locked hold(unused_lock);
  PoolBlock* const block = blocks_unused;
  if (!block) return new (internal_allocate(sizeof(PoolBlock))) PoolBlock;
  blocks_unused = block->next_unused;
  return block;
}

// A record may be used for another block by the time that it is looked at: what it says counts for `address` only, and
// only while its state, births included, is what it was before. 0: it is no live block's.
struct Seen {
  std::uint64_t state;
  const Account* account;
};
Seen see(const PoolBlock* record, std::uintptr_t address) {
  if (!record) return {0, nullptr};
  const std::uint64_t state = record->state.load();
  const Account* const account = record->account.load();
  const bool is_it = (state & kStateMask) == kLive && record->address.load() == address;
  return is_it && record->state.load() == state ? Seen{state, account} : Seen{0, nullptr};
}

bool claim(PoolBlock& record, std::uint64_t state) {
  return record.state.compare_exchange_strong(state, (state & ~std::uint64_t{kStateMask}) | kGoing);
}

void put_away(PoolBlock* block) {
  block->state.store((block->state.load() & ~std::uint64_t{kStateMask}) | kGone);
  block->address.store(0, std::memory_order_release);
  const Locked hold(unused_lock);
  block->next_unused = blocks_unused;
  blocks_unused = block;
}

// A record that another one took the place of: the block was freed by a call that knows no pools.
void end_stale(PoolBlock* stale, std::uintptr_t address) {
  const std::uint64_t state = stale->state.load();
  // Or a deallocation has it in hand, or had.
  if ((state & kStateMask) != kLive || stale->address.load() != address || !claim(*stale, state)) return;
  Account& account = *stale->account.load();
  account.frees.fetch_add(1, std::memory_order_relaxed);
  leave(account, stale->bytes);
  put_away(stale);
}

void keep(Account& account, std::uintptr_t base, std::uintptr_t address, std::uint64_t bytes) {
  PoolBlock* const block = new_block();
  block->account = &account;
  block->bytes = bytes;
  block->base = base;
  block->address.store(address, std::memory_order_relaxed);
  block->state.store((block->state.load() & ~std::uint64_t{kStateMask}) + kBirth + kLive);
  if (PoolBlock* const stale = blocks.insert(address, block)) end_stale(stale, address);
}

void say_refused(const char* api, const void* pointer, const char* what, const Account& owner) {
  StringSink line;
  line.print("{}({}): {} pool \"{}\" ({}); refused", api, pointer, what, owner.name, kKindNames[owner.settings.kind]);
  warn_line(line.text());
}

cistern_status allocate_once(Account& account, const cistern_pool* pool, std::size_t bytes, std::size_t alignment,
                             void** result) {
  const bool shifts = alignment > natural_alignment(account.settings.kind);
  std::uintptr_t base = 0;
  cistern_status status = enter(account, pool, bytes);
  if (status != CISTERN_OK) return status;
  status = take(account.settings, shifts ? bytes + alignment : bytes, alignment, &base);
  if (status != CISTERN_OK) {
    leave(account, bytes);
    return status;
  }
  const std::uintptr_t address = shifts ? (base + alignment - 1) & ~(alignment - 1) : base;
  keep(account, base, address, bytes);
  raise_peak(account.peak_bytes, account.live_bytes.load());
  account.allocations.fetch_add(1, std::memory_order_relaxed);
  account.allocated_bytes.fetch_add(bytes, std::memory_order_relaxed);
  *result = reinterpret_cast<void*>(address);
  return CISTERN_OK;
}

bool is_right(const cistern_pool_settings& settings) {
  int kind = 0;  // of a program in C any number
  memcpy(&kind, &settings.kind, sizeof kind);
  if (kind < CISTERN_HOST || kind > CISTERN_MANAGED) return false;
  return (settings.kind == CISTERN_OPENCL) == (settings.context != nullptr);
}

Account* new_account() {
  constexpr std::uint32_t kKeptForReports = 1024;  // of destroyed pools
  if (Account* const unused = accounts_unused; unused && accounts_made >= kKeptForReports) {
    accounts_unused = unused->next_unused;
    return unused;
  }
  if (accounts_made == 1u << kIndexBits) return nullptr;
  std::atomic<Account*>& page = pages[accounts_made >> kPageBits];
  if (!page.load()) {
    auto* const made = static_cast<Account*>(internal_allocate(sizeof(Account) << kPageBits));
    for (unsigned i = 0; i < 1u << kPageBits; ++i) new (&made[i]) Account;
    page.store(made, std::memory_order_release);
  }
  Account* const account = account_at(accounts_made);
  account->index = accounts_made++;
  return account;
}

// Destroyed ones too.
template <class Visit>
void for_each_account(Visit visit) {
  const Locked hold(accounts_lock);
  for (std::uint32_t i = 0; i < accounts_made; ++i) visit(*account_at(i));
}

}  // namespace

cistern_status pool_create(const cistern_pool_settings* settings, cistern_pool** pool) {
  if (pool) *pool = nullptr;
  cistern_pool_settings own{};
  if (!pool || !settings || settings->size < offsetof(cistern_pool_settings, bytes_max)) return CISTERN_INVALID;
  memcpy(&own, settings, std::min(settings->size, sizeof own));
  if (!is_right(own)) return CISTERN_INVALID;
  const Locked hold(accounts_lock);
  Account* const account = new_account();
  if (!account) return CISTERN_NO_MEMORY;
  account->settings = own;
  const char* const name = own.name ? own.name : "pool";
  const std::size_t name_bytes = strnlen(name, sizeof account->name - 1);
  memcpy(account->name, name, name_bytes);
  account->name[name_bytes] = '\0';
  account->settings.name = account->name;
  account->begin_anew();
  any_pool = true;
  *pool = handle_of(*account, account->generation.fetch_add(1) + 1);
  return CISTERN_OK;
}

cistern_status pool_destroy(cistern_pool* pool) {
  const Locked hold(accounts_lock);
  Account* const account = account_of("cistern_pool_destroy", pool);
  if (!account) return CISTERN_INVALID;
  account->closes = true;
  if (account->live_blocks.load()) {
    account->closes = false;
    return CISTERN_BUSY;
  }
  account->generation.fetch_add(1);
  account->next_unused = accounts_unused;
  accounts_unused = account;
  return CISTERN_OK;
}

cistern_status pool_allocate(cistern_pool* pool, size_t bytes, size_t alignment, void** block) {
  const void* const caller = __builtin_return_address(0);
  const CalledFrom for_host(caller, Calls::frequent), for_others(caller, Calls::some);
  native = 0;
  if (block) *block = nullptr;
  Account* const account = account_of("cistern_pool_allocate", pool);
  if (!account || !block || !bytes || bytes > PTRDIFF_MAX / 2) return CISTERN_INVALID;
  if (alignment && (!std::has_single_bit(alignment) || alignment > PTRDIFF_MAX / 4)) return CISTERN_INVALID;
  const cistern_pool_settings& settings = account->settings;
  if (alignment && settings.kind == CISTERN_OPENCL) return CISTERN_INVALID;
  for (;;) {
    const cistern_status status = allocate_once(*account, pool, bytes, alignment, block);
    if (status == CISTERN_OK) break;
    const bool ran_out = status == CISTERN_NO_MEMORY || status == CISTERN_LIMIT;
    if (!ran_out || !settings.out_of_memory || !settings.out_of_memory(pool, bytes, settings.user)) {
      account->failed.fetch_add(1, std::memory_order_relaxed);
      return status;
    }
  }
  if (settings.allocated) settings.allocated(pool, *block, bytes, settings.user);
  return CISTERN_OK;
}

cistern_status pool_deallocate(cistern_pool* pool, void* block, void* queue) {
  constexpr char kApi[] = "cistern_pool_deallocate";
  const void* const caller = __builtin_return_address(0);
  const CalledFrom for_host(caller, Calls::frequent), for_others(caller, Calls::some);
  native = 0;
  Account* const account = account_of(kApi, pool);
  if (!account) return CISTERN_INVALID;
  if (!block) return CISTERN_OK;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  PoolBlock* const record = blocks.find(address);
  const Seen seen = see(record, address);
  if (seen.account && seen.account != account) {
    say_refused(kApi, block, "a live block of", *seen.account);
    return CISTERN_INVALID;
  }
  if (!seen.account || !claim(*record, seen.state)) {
    say_refused(kApi, block, "no live block of", *account);
    return CISTERN_INVALID;
  }
  const cistern_pool_settings& settings = account->settings;
  const std::uint64_t bytes = record->bytes;
  if (settings.deallocated) settings.deallocated(pool, block, bytes, settings.user);
  const std::uintptr_t base = record->base;
  const cistern_status status = give(settings.kind, base, queue);
  if (status != CISTERN_OK) {
    record->state.store(seen.state);
    return status;
  }
  blocks.erase(address, record);
  put_away(record);
  account->frees.fetch_add(1, std::memory_order_relaxed);
  leave(*account, bytes);
  return CISTERN_OK;
}

cistern_status pool_get_statistics(cistern_pool* pool, cistern_pool_statistics* statistics, size_t bytes) {
  const Account* const account = account_of("cistern_pool_get_statistics", pool);
  if (!account || !statistics) return CISTERN_INVALID;
  const cistern_pool_statistics all = {
      account->allocations, account->frees,      account->failed,          account->live_blocks,
      account->live_bytes,  account->peak_bytes, account->allocated_bytes, account->settings.bytes_max};
  memcpy(statistics, &all, std::min(bytes, sizeof all));
  return CISTERN_OK;
}

cistern_status pool_visit(cistern_pool* pool, int (*visit)(void* block, size_t bytes, void* user), void* user) {
  const Account* const account = account_of("cistern_pool_visit", pool);
  if (!account || !visit) return CISTERN_INVALID;
  struct Live {
    std::uintptr_t address;
    std::uint64_t bytes;
  };
  Vector<Live> live;
  blocks.for_each([&](PoolBlock& block) {
    if (block.account.load() == account && block.is_live()) live.push_back({block.address.load(), block.bytes});
  });
  for (const Live& block : live)
    if (see(blocks.find(block.address), block.address).account == account &&
        visit(reinterpret_cast<void*>(block.address), block.bytes, user))
      break;
  return CISTERN_OK;
}

int native_error() { return native; }

bool refuse_block_of_pool(const char* api, const void* block) {
  if (!any_pool.load(std::memory_order_relaxed) || !block) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const Account* const owner = see(blocks.find(address), address).account;
  if (owner) say_refused(api, block, "a live block of", *owner);
  return owner;
}

void add_pools(Snapshot& snapshot) {
  for_each_account([&](const Account& account) {
    const bool is_destroyed = !(account.generation.load() & 1);
    snapshot.library_pools.push_back({account.name, kKindNames[account.settings.kind], is_destroyed,
                                      account.allocations, account.frees, account.failed, account.live_blocks,
                                      account.live_bytes, account.peak_bytes, account.allocated_bytes,
                                      account.settings.bytes_max});
  });
}

void pools_before_fork() {
  accounts_lock.lock_for_fork();
  blocks.before_fork();
  unused_lock.lock_for_fork();
}

void pools_after_fork_in_parent() {
  unused_lock.unlock_after_fork();
  blocks.after_fork();
  accounts_lock.unlock_after_fork();
}

void pools_after_fork_in_child() {
  pools_after_fork_in_parent();
  for_each_account([](Account& account) { account.begin_anew(); });
  // What other threads had in hand when they forked is nobody's now.
  blocks.for_each([](PoolBlock& block) {
    if (!block.is_live()) return;
    Account& account = *block.account.load();
    account.live_blocks.fetch_add(1);
    account.peak_bytes = account.live_bytes.fetch_add(block.bytes) + block.bytes;
  });
}

}  // namespace cistern::library
