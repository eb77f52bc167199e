// See samples.hpp: blocks of more than a system page that are sampled where they lie. A table by address has the facts
// about them: open addressing, linear probing. Samples are few, so one lock is enough. The table is not one of
// pool/base, since malloc must go on when memory for an entry is exhausted, and while a thread forks: then the block is
// not sampled.
#include "pool/heap/samples_in_place.hpp"

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"

namespace cistern::host_pool {

struct SampleInPlace {
  std::uintptr_t block;  // 0: none
  SampleRecord sample;
};

namespace {

constexpr std::size_t kEntriesAtFirst = 64;

constexpr Samples& samples = the_pool.samples;

std::size_t home_of(std::uintptr_t block) { return block * 0x9E3779B97F4A7C15 >> 32 & samples.in_place_mask; }

char* block_at(const Page& page, unsigned number) { return page_memory(&page) + number * class_bytes(page.size_class); }

// The block's entry, or the free one where it would be.
SampleInPlace& entry_of(std::uintptr_t block) {
  std::size_t at = home_of(block);
  while (samples.in_place[at].block && samples.in_place[at].block != block) at = (at + 1) & samples.in_place_mask;
  return samples.in_place[at];
}

// Whether its block's page still says so.
bool is_current(const SampleInPlace& entry) {
  const auto [page, offset] = spot_of(reinterpret_cast<const void*>(entry.block));
  if (page->state != PageState::medium) return false;
  const unsigned number = medium_number(*page, offset);
  return number != kNoBlock && is_sampled_in_place(*page, number);
}

// At least one entry of four stays free. False: no memory.
bool make_room() {
  if (samples.in_place && samples.in_place_used < (samples.in_place_mask + 1) / 4 * 3) return true;
  const std::size_t count = samples.in_place ? 2 * (samples.in_place_mask + 1) : kEntriesAtFirst;
  auto* const larger = static_cast<SampleInPlace*>(internal_try_allocate(count * sizeof(SampleInPlace)));
  if (!larger) return false;
  for (std::size_t i = 0; i < count; ++i) larger[i] = {};
  SampleInPlace* const old = samples.in_place;
  const std::size_t old_count = old ? samples.in_place_mask + 1 : 0;
  samples.in_place = larger;
  samples.in_place_mask = count - 1;
  samples.in_place_used = 0;
  for (std::size_t i = 0; i < old_count; ++i) {
    if (!old[i].block || !is_current(old[i])) continue;
    entry_of(old[i].block) = old[i];
    ++samples.in_place_used;
  }
  if (old) internal_deallocate(old, old_count * sizeof(SampleInPlace));
  return true;
}

// Entries behind that were displaced by this one, or by one behind it, move up.
void erase(SampleInPlace& entry) {
  auto hole = static_cast<std::size_t>(&entry - samples.in_place);
  for (std::size_t at = hole;;) {
    at = (at + 1) & samples.in_place_mask;
    if (!samples.in_place[at].block) break;
    const std::size_t from_home = (at - home_of(samples.in_place[at].block)) & samples.in_place_mask;
    if (from_home < ((at - hole) & samples.in_place_mask)) continue;
    samples.in_place[hole] = samples.in_place[at];
    hole = at;
  }
  samples.in_place[hole] = {};
  --samples.in_place_used;
}

void visit_entries(void (*visit)(void* context, const Sample& sample), void* context) {
  for (std::size_t i = 0; samples.in_place && i <= samples.in_place_mask; ++i) {
    const SampleInPlace& entry = samples.in_place[i];
    if (!entry.block || !is_current(entry)) continue;
    const std::size_t bytes = class_bytes(entry.sample.live_class - 1u);
    visit(context, {reinterpret_cast<const void*>(entry.block), bytes, entry.sample.requested_bytes, entry.sample.site,
                    entry.sample.born_ms, sample_weight(bytes, entry.sample.doublings),
                    entry.sample.forks != samples.forks_so_far});
  }
}

}  // namespace

void sample_in_place(Page& page, unsigned number, std::size_t bytes, unsigned doublings) {
  SampleRecord sample;
  if (!capture_sample(bytes, doublings, sample)) return;
  sample.live_class = static_cast<std::uint16_t>(page.size_class + 1);
  {
    const LockedUnlessForking hold(samples.in_place_lock);
    if (!hold || !make_room()) return;
    const std::uintptr_t block = address_of(block_at(page, number));
    SampleInPlace& entry = entry_of(block);
    if (!entry.block) ++samples.in_place_used;
    entry = {block, sample};
    page.sited.fetch_or(1u << number, std::memory_order_relaxed);
  }
  note_sample_born(block_at(page, number), sample, class_bytes(page.size_class));
}

void forget_in_place(Page& page, unsigned number) {
  if (!is_sampled_in_place(page, number)) [[likely]]
    return;
  const LockedUnlessForking hold(samples.in_place_lock);
  if (!is_sampled_in_place(page, number)) return;
  note_sample_died(block_at(page, number));
  page.sited.fetch_and(~(1u << number), std::memory_order_relaxed);
  if (hold) erase(entry_of(address_of(block_at(page, number))));
}

std::uint32_t site_in_place(const Page& page, unsigned number) {
  const LockedUnlessForking hold(samples.in_place_lock);
  return hold && is_sampled_in_place(page, number) ? entry_of(address_of(block_at(page, number))).sample.site : 0;
}

void note_size_in_place(Page& page, unsigned number, std::size_t bytes) {
  const LockedUnlessForking hold(samples.in_place_lock);
  if (hold && is_sampled_in_place(page, number))
    entry_of(address_of(block_at(page, number))).sample.requested_bytes = static_cast<std::uint32_t>(bytes);
  note_sample_resized(block_at(page, number), bytes);
}

bool visit_samples_in_place(void (*visit)(void* context, const Sample& sample), void* context, AtFork at_fork) {
  if (at_fork == AtFork::wait) {
    const Locked hold(samples.in_place_lock);
    visit_entries(visit, context);
    return true;
  }
  const LockedUnlessForking hold(samples.in_place_lock);
  if (hold) visit_entries(visit, context);
  return static_cast<bool>(hold);
}

void samples_in_place_before_fork() { samples.in_place_lock.lock_for_fork(); }
void samples_in_place_after_fork() { samples.in_place_lock.unlock_after_fork(); }

}  // namespace cistern::host_pool
