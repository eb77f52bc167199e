// See samples.hpp: blocks of more than a system page that are sampled where they lie. What is known of them stands
// in a table by address: open addressing, linear probing. Samples are few, so one lock does. A table of its own, since
// malloc must go on where there is no memory for an entry, and while a thread forks: a block is no sample then.
#include "pool/heap/samples.hpp"

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/heap/medium.hpp"

namespace cistern::host_pool {
namespace {

struct Entry {
  std::uintptr_t block;  // 0: none
  SampleRecord sample;
};

constexpr std::size_t kEntriesAtFirst = 64;

constinit Lock entries_lock;  // while a thread forks the bit in the page goes, and the entry stays behind
constinit Entry* entries = nullptr;
constinit std::size_t entries_mask = 0, entries_used = 0;

std::size_t home_of(std::uintptr_t block) { return block * 0x9E3779B97F4A7C15 >> 32 & entries_mask; }

char* block_at(const Page& page, unsigned number) { return page_memory(&page) + number * class_bytes(page.size_class); }

// The block's entry, or the free one where it would be.
Entry& entry_of(std::uintptr_t block) {
  std::size_t at = home_of(block);
  while (entries[at].block && entries[at].block != block) at = (at + 1) & entries_mask;
  return entries[at];
}

// Whether its block's page still says so.
bool is_current(const Entry& entry) {
  const auto [page, offset] = spot_of(reinterpret_cast<const void*>(entry.block));
  if (page->state != PageState::medium) return false;
  const unsigned number = medium_number(*page, offset);
  return number != kNoBlock && is_sampled_in_place(*page, number);
}

// At least one entry of four stays free. False: no memory.
bool make_room() {
  if (entries && entries_used < (entries_mask + 1) / 4 * 3) return true;
  const std::size_t count = entries ? 2 * (entries_mask + 1) : kEntriesAtFirst;
  auto* const larger = static_cast<Entry*>(internal_try_allocate(count * sizeof(Entry)));
  if (!larger) return false;
  for (std::size_t i = 0; i < count; ++i) larger[i] = {};
  Entry* const old = entries;
  const std::size_t old_count = old ? entries_mask + 1 : 0;
  entries = larger;
  entries_mask = count - 1;
  entries_used = 0;
  for (std::size_t i = 0; i < old_count; ++i) {
    if (!old[i].block || !is_current(old[i])) continue;
    entry_of(old[i].block) = old[i];
    ++entries_used;
  }
  if (old) internal_deallocate(old, old_count * sizeof(Entry));
  return true;
}

// Entries behind that were displaced by this one, or by one behind it, move up.
void erase(Entry& entry) {
  auto hole = static_cast<std::size_t>(&entry - entries);
  for (std::size_t at = hole;;) {
    at = (at + 1) & entries_mask;
    if (!entries[at].block) break;
    const std::size_t from_home = (at - home_of(entries[at].block)) & entries_mask;
    if (from_home < ((at - hole) & entries_mask)) continue;
    entries[hole] = entries[at];
    hole = at;
  }
  entries[hole] = {};
  --entries_used;
}

void visit_entries(void (*visit)(void* context, const Sample& sample), void* context) {
  for (std::size_t i = 0; entries && i <= entries_mask; ++i) {
    const Entry& entry = entries[i];
    if (!entry.block || !is_current(entry)) continue;
    const std::size_t bytes = class_bytes(entry.sample.live_class - 1u);
    visit(context,
          {reinterpret_cast<const void*>(entry.block), bytes, entry.sample.requested_bytes, entry.sample.site,
           entry.sample.born_ms, sample_weight(bytes, entry.sample.doublings), entry.sample.forks != forks_so_far});
  }
}

}  // namespace

void sample_in_place(Page& page, unsigned number, std::size_t bytes, unsigned doublings) {
  SampleRecord sample;
  if (!capture_sample(bytes, doublings, sample)) return;
  sample.live_class = static_cast<std::uint16_t>(page.size_class + 1);
  const LockedUnlessForking hold(entries_lock);
  if (!hold || !make_room()) return;
  const std::uintptr_t block = address_of(block_at(page, number));
  Entry& entry = entry_of(block);
  if (!entry.block) ++entries_used;
  entry = {block, sample};
  page.sited.fetch_or(1u << number, std::memory_order_relaxed);
}

void forget_in_place(Page& page, unsigned number) {
  if (!is_sampled_in_place(page, number)) [[likely]]
    return;
  const LockedUnlessForking hold(entries_lock);
  if (!is_sampled_in_place(page, number)) return;
  page.sited.fetch_and(~(1u << number), std::memory_order_relaxed);
  if (hold) erase(entry_of(address_of(block_at(page, number))));
}

std::uint32_t site_in_place(const Page& page, unsigned number) {
  const LockedUnlessForking hold(entries_lock);
  return hold && is_sampled_in_place(page, number) ? entry_of(address_of(block_at(page, number))).sample.site : 0;
}

void note_size_in_place(Page& page, unsigned number, std::size_t bytes) {
  const LockedUnlessForking hold(entries_lock);
  if (hold && is_sampled_in_place(page, number))
    entry_of(address_of(block_at(page, number))).sample.requested_bytes = static_cast<std::uint32_t>(bytes);
}

bool visit_samples_in_place(void (*visit)(void* context, const Sample& sample), void* context, AtFork at_fork) {
  if (at_fork == AtFork::wait) {
    const Locked hold(entries_lock);
    visit_entries(visit, context);
    return true;
  }
  const LockedUnlessForking hold(entries_lock);
  if (hold) visit_entries(visit, context);
  return static_cast<bool>(hold);
}

void samples_in_place_before_fork() { entries_lock.lock_for_fork(); }
void samples_in_place_after_fork() { entries_lock.unlock_after_fork(); }

}  // namespace cistern::host_pool
