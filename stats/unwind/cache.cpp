// See cache.hpp. Rows are inserted under a lock into an open hash table; modules that may be unloaded are told
// apart by their place and their build id.
#include "stats/unwind/cache.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/page_size.hpp"
#include "stats/unwind/build_id.hpp"
#include "stats/unwind/modules.hpp"

namespace cistern::unwind {
namespace {

constinit Lock rows_lock;  // guards insertion, into `unloadable` as well

// --- The table
constexpr unsigned kBitsMin = 9, kBitsMax = 18;

// Twice the size, with the same rows; readers may go on with the old one, so that is kept.
Rows* larger(Rows* old) {
  const unsigned bits = old ? old->bits + 1 : kBitsMin;
  if (bits > kBitsMax) return nullptr;
  void* const memory = internal_try_allocate(Rows::bytes(bits));
  if (!memory) return nullptr;
  std::memset(memory, 0, Rows::bytes(bits));
  Rows* const table = new (memory) Rows;
  table->bits = bits;
  table->used = 0;
  for (Slot* from = old ? old->slots : nullptr; old && from < old->end(); ++from) {
    const std::uintptr_t address = from->address.load(std::memory_order_relaxed);
    if (!address) continue;
    Slot* to = &table->first(address);
    while (to->address.load(std::memory_order_relaxed)) ++to;
    to->address.store(address, std::memory_order_relaxed);
    to->row.store(from->row.load(std::memory_order_relaxed), std::memory_order_relaxed);
    ++table->used;
  }
  rows.store(table, std::memory_order_release);
  return table;
}

void insert(std::uintptr_t address, Row row) {
  Rows* table = rows.load(std::memory_order_relaxed);
  if (!table || table->used >= 1u << (table->bits - 1)) table = larger(table);
  if (!table) return;
  Slot* slot = &table->first(address);
  std::uintptr_t there;
  while ((there = slot->address.load(std::memory_order_relaxed)) && there != address) {
    if (++slot == table->end() - 1) return;  // the last one stays free
  }
  slot->row.store(row, std::memory_order_relaxed);
  if (!there) ++table->used;
  slot->address.store(address, std::memory_order_release);
}

// --- Modules that may be unloaded: another one at the place of one, were it only a rebuilt one, has another build id
struct Unloadable {
  const char *start, *end;
  const char* id_at;  // in the first page, which every module has
  std::uint64_t id;
  bool operator==(const Unloadable&) const = default;
};

constexpr unsigned kUnloadableMax = 4096;
constinit Unloadable unloadable[kUnloadableMax] = {};  // by number, from 1; one is final once a row has the number
constinit unsigned unloadable_count = 1;

bool find_module(std::uintptr_t address, dl_find_object& found) {
  return _dl_find_object(reinterpret_cast<void*>(address), &found) == 0;
}

std::uint64_t id_at(const char* at) {
  std::uint64_t id;
  std::memcpy(&id, at, sizeof id);
  return id;
}

// False: without a build id it could not be told from another one.
bool describe(const dl_find_object& found, Unloadable& module) {
  module.start = static_cast<const char*>(found.dlfo_map_start);
  module.end = static_cast<const char*>(found.dlfo_map_end);
  const std::string_view id =
      build_id_of(module.start, std::min(module.start + kLeastPageBytes, module.end), &found.dlfo_link_map->l_addr);
  if (id.size() < sizeof module.id) return false;
  module.id_at = id.data();
  module.id = id_at(module.id_at);
  return true;
}

// Its number in `unloadable`; 0: there is no room. Under the lock.
unsigned number_of(const Unloadable& module) {
  for (unsigned i = 1; i < unloadable_count; ++i)
    if (unloadable[i] == module) return i;
  if (unloadable_count == kUnloadableMax) return 0;
  unloadable[unloadable_count] = module;
  return unloadable_count++;
}

bool is_loaded_still(unsigned number, std::uintptr_t address) {
  const Unloadable& module = unloadable[number];
  dl_find_object found;
  return find_module(address - 1, found) && found.dlfo_map_start == module.start && found.dlfo_map_end == module.end &&
         id_at(module.id_at) == module.id;
}

}  // namespace

Row learn(std::uintptr_t address) {
  dl_find_object found;
  if (!find_module(address - 1, found)) return {};
  Row row = read_row(found.dlfo_eh_frame, address - 1);
  const Module* module;
  if (!module_at(address - 1, module)) return {};
  const LockedUnlessForking hold(rows_lock);
  if (!hold) return {};
  if (!module || !module->is_permanent) {
    Unloadable description;
    const unsigned number = describe(found, description) ? number_of(description) : 0;
    row = number ? row.of_module(number) : Row{};  // nobody would notice when it is gone
  } else if (module->is_own && !module->is_program) {
    row = row.of_own();
  }
  insert(address, row);
  return row;
}

Row up_to_date(Row row, std::uintptr_t address) {
  return is_loaded_still(row.module(), address) ? row : learn(address);
}

void cache_before_fork() { rows_lock.lock_for_fork(); }
void cache_after_fork() { rows_lock.unlock_after_fork(); }

}  // namespace cistern::unwind
