// A pool (cistern/pool.h) is an account and a handle. A handle is a number, not an address: one that is out of use is
// told from all others, and nothing is read through it. Accounts are used again, and never given back.
#pragma once
#include <atomic>

#include "pool/base/lock.hpp"
#include "shim/library/kind_memory.hpp"
#include "shim/library/segments.hpp"

namespace cistern::library {

struct PoolBlock;

struct Account {
  // Odd: in use. Each use has another number.
  std::atomic<std::uint32_t> generation{0};
  std::uint32_t index = 0;
  Account* next_unused = nullptr;
  char name[64] = {};
  cistern_pool_settings settings{};
  const KindMemory* memory = nullptr;  // the one for settings.kind
  bool is_default = false;             // the process's own: blocks have no records, and its figures are the kind's
  std::uint64_t born_ns = 0;
  std::atomic<std::uint64_t> live_bytes{0}, peak_bytes{0}, hits{0}, failed{0};
  // Under the lock: one costs less than an atomic addition to each.
  mutable Lock lock;
  std::uint64_t allocations = 0, frees = 0, live_blocks = 0, allocated_bytes = 0;
  PoolBlock* blocks_unused = nullptr;  // records
  PoolSegments segments;               // with a lock of its own

  void begin_anew(std::uint64_t now_ns);
};

// Null and a line: no pool, or not any more.
Account* account_of(const char* api, const cistern_pool* pool);

// A block, before it is there, as long as the limit allows it and the pool is one; with a record for it. `instead_of`:
// bytes of a block that will go when this one is there.
cistern_status enter(Account& account, const cistern_pool* pool, std::uint64_t bytes, std::uint64_t instead_of,
                     PoolBlock** record);
// It did not come to be; it has gone.
void take_out(Account& account, std::uint64_t bytes, PoolBlock* record);
void leave(Account& account, std::uint64_t bytes, PoolBlock* record);

// `settings` are right; null: there are too many pools.
cistern_pool* new_pool(const cistern_pool_settings& settings);
cistern_status end_pool(cistern_pool* pool, PoolSegments::Ended* ended);
// Null: there is no such kind.
cistern_pool* default_pool(cistern_kind kind);

// In the order in which they were made, destroyed ones too, but not the process's own. Under a lock: it must not call
// out of Cistern.
void visit_accounts(void (*visit)(Account& account, void* context), void* context);

void accounts_before_fork();
void accounts_after_fork();

}  // namespace cistern::library
