// See pool_accounts.hpp.
#include "shim/library/pool_accounts.hpp"

#include <string.h>

#include <new>

#include "pool/base/internal_memory.hpp"
#include "shim/library/pool_blocks.hpp"
#include "shim/library/pools.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/log.hpp"
#include "stats/counters.hpp"
#include "stats/sink.hpp"

namespace cistern::library {
namespace {

constexpr unsigned kPageBits = 10, kIndexBits = 20;
constinit std::atomic<Account*> pages[1 << (kIndexBits - kPageBits)] = {};
constinit Lock accounts_lock;  // for making and ending one
constinit std::uint32_t accounts_made = 0;
constinit Account* accounts_unused = nullptr;
// One for each table of memory, in the order of the kinds.
constexpr std::size_t kDefaultPoolsMax = 16;
constinit std::atomic<cistern_pool*> default_pools[kDefaultPoolsMax] = {};

cistern_pool* handle_of(const Account& account, std::uint32_t generation) {
  return reinterpret_cast<cistern_pool*>((std::uint64_t{generation} << kIndexBits | account.index) << 3 | 1);
}

Account* account_at(std::uint32_t index) {
  Account* const page = pages[index >> kPageBits].load(std::memory_order_acquire);
  return page ? &page[index & ((1u << kPageBits) - 1)] : nullptr;
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
  // Another copy of the library in the process counts from elsewhere: its handles are not taken for one's own.
  const auto here = reinterpret_cast<std::uintptr_t>(&accounts_made) * 0x9E3779B97F4A7C15ull;
  account->generation = static_cast<std::uint32_t>(here >> 32) & ~1u;
  return account;
}

// Null: there is no such kind.
std::atomic<cistern_pool*>* slot_of_default(cistern_kind kind) {
  std::size_t index = 0;
  for (const Kind* of : kinds())
    for (const KindMemory* memory : of->memory) {
      if (index == kDefaultPoolsMax) return nullptr;
      if (memory->kind == kind) return &default_pools[index];
      ++index;
    }
  return nullptr;
}

// Under the lock.
cistern_pool* open_pool(const cistern_pool_settings& settings, bool is_default) {
  Account* const account = new_account();
  if (!account) return nullptr;
  account->settings = settings;
  account->memory = memory_of(settings.kind);
  const char* const name = settings.name ? settings.name : "pool";
  const std::size_t name_bytes = strnlen(name, sizeof account->name - 1);
  memcpy(account->name, name, name_bytes);
  account->name[name_bytes] = '\0';
  account->settings.name = account->name;
  account->is_default = is_default;
  account->begin_anew(nanoseconds_since_start());
  return handle_of(*account, account->generation.fetch_add(1) + 1);
}

[[gnu::cold, gnu::noinline]] void say_no_pool(const char* api, const cistern_pool* pool) {
  StringSink line;
  line.print("{}({}): no pool, or destroyed already; refused", api, static_cast<const void*>(pool));
  warn_line(line.text());
}

}  // namespace

void Account::begin_anew(std::uint64_t now_ns) {
  allocations = frees = live_blocks = allocated_bytes = 0;
  for (auto* const count : {&live_bytes, &peak_bytes, &hits, &failed}) *count = 0;
  born_ns = now_ns;
}

Account* account_of(const char* api, const cistern_pool* pool) {
  const auto word = reinterpret_cast<std::uintptr_t>(pool);
  if ((word & 7) == 1 && word >> 3 >> kIndexBits <= UINT32_MAX) {
    const std::uint64_t number = word >> 3;
    const auto generation = static_cast<std::uint32_t>(number >> kIndexBits);
    Account* const account = account_at(number & ((1u << kIndexBits) - 1));
    if (account && (generation & 1) && account->generation.load(std::memory_order_acquire) == generation)
      return account;
  }
  say_no_pool(api, pool);
  return nullptr;
}

cistern_status enter(Account& account, const cistern_pool* pool, std::uint64_t bytes, std::uint64_t instead_of,
                     PoolBlock** record) {
  {
    const Locked hold(account.lock);
    if (handle_of(account, account.generation.load(std::memory_order_relaxed)) != pool) return CISTERN_INVALID;
    const std::uint64_t most = account.settings.bytes_max ? account.settings.bytes_max : UINT64_MAX;
    const std::uint64_t live = account.live_bytes.load(std::memory_order_relaxed);
    if (bytes > most || live - instead_of > most - bytes) return CISTERN_LIMIT;
    account.live_bytes.store(live + bytes, std::memory_order_relaxed);
    ++account.live_blocks;
    ++account.allocations;
    account.allocated_bytes += bytes;
    *record = account.blocks_unused;
    if (*record) account.blocks_unused = (*record)->next_unused;
  }
  if (!*record) *record = new (internal_allocate(sizeof(PoolBlock))) PoolBlock;
  return CISTERN_OK;
}

namespace {

void put_away(Account& account, std::uint64_t bytes, PoolBlock* record) {
  account.live_bytes.store(account.live_bytes.load(std::memory_order_relaxed) - bytes, std::memory_order_relaxed);
  --account.live_blocks;
  record->next_unused = account.blocks_unused;
  account.blocks_unused = record;
}

}  // namespace

void take_out(Account& account, std::uint64_t bytes, PoolBlock* record) {
  const Locked hold(account.lock);
  --account.allocations;
  account.allocated_bytes -= bytes;
  put_away(account, bytes, record);
}

void leave(Account& account, std::uint64_t bytes, PoolBlock* record) {
  const Locked hold(account.lock);
  ++account.frees;
  put_away(account, bytes, record);
}

cistern_pool* new_pool(const cistern_pool_settings& settings) {
  const Locked hold(accounts_lock);
  any_pool = true;
  return open_pool(settings, false);
}

cistern_status end_pool(cistern_pool* pool, PoolSegments::Ended* ended) {
  Account* const account = account_of("cistern_pool_destroy", pool);
  if (!account || account->is_default) return CISTERN_INVALID;
  const Locked hold(accounts_lock);
  {
    const Locked inside(account->lock);
    // Another thread may have destroyed it meanwhile.
    if (handle_of(*account, account->generation.load(std::memory_order_relaxed)) != pool) return CISTERN_INVALID;
    if (account->live_blocks) return CISTERN_BUSY;
    account->generation.fetch_add(1);
    account->segments.end(ended);
  }
  account->next_unused = accounts_unused;
  accounts_unused = account;
  return CISTERN_OK;
}

cistern_pool* default_pool(cistern_kind kind) {
  std::atomic<cistern_pool*>* const slot = slot_of_default(kind);
  if (!slot) return nullptr;
  if (cistern_pool* const known = slot->load(std::memory_order_acquire)) return known;
  const Locked hold(accounts_lock);
  if (!slot->load()) {
    cistern_pool_settings settings{};
    settings.name = "default";
    settings.kind = kind;
    slot->store(open_pool(settings, true), std::memory_order_release);
  }
  return slot->load();
}

void visit_accounts(void (*visit)(Account& account, void* context), void* context) {
  const Locked hold(accounts_lock);
  for (std::uint32_t i = 0; i < accounts_made; ++i)
    if (Account& account = *account_at(i); !account.is_default) visit(account, context);
}

void accounts_before_fork() {
  accounts_lock.lock_for_fork();
  for (std::uint32_t i = 0; i < accounts_made; ++i) {
    account_at(i)->lock.lock_for_fork();
    account_at(i)->segments.before_fork();
  }
}

void accounts_after_fork() {
  for (std::uint32_t i = 0; i < accounts_made; ++i) {
    account_at(i)->segments.after_fork();
    account_at(i)->lock.unlock_after_fork();
  }
  accounts_lock.unlock_after_fork();
}

}  // namespace cistern::library
