// See samples.hpp.
#include "pool/heap/samples.hpp"

#include <algorithm>
#include <bit>

#include "pool/base/internal_memory.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/samples_in_place.hpp"

namespace cistern::host_pool {

namespace {

// The lock of a page that was seen to be one of sampled blocks. Meanwhile it may have gone back, even be a heap's page:
// what is written in it is believed only as far as it holds under the lock. While a thread forks malloc goes on without
// the lock: what it reads of a live block holds still.
class LockedPage {
 public:
  explicit LockedPage(const Page& page, AtFork at_fork = AtFork::go_on)
      : number_(page.shard.load(std::memory_order_relaxed)), shard_(the_pool.shards[number_ % kShards]) {
    if (at_fork == AtFork::wait) {
      shard_.lock.lock();
      is_locked_ = true;
    } else {
      is_locked_ = shard_.lock.lock_unless_forking();
    }
    is_sampled_ =
        number_ < kShards && page.state == PageState::sampled && page.shard.load(std::memory_order_relaxed) == number_;
  }
  ~LockedPage() {
    if (is_locked_) shard_.lock.unlock();
  }
  LockedPage(const LockedPage&) = delete;
  LockedPage& operator=(const LockedPage&) = delete;
  explicit operator bool() const { return is_sampled_; }
  bool is_locked() const { return is_locked_; }
  Shard& shard() { return shard_; }

 private:
  const unsigned number_;
  Shard& shard_;
  bool is_locked_, is_sampled_;
};

// The last block that this thread was given, if it made no call since. Its complement: who looks for pointers to live
// memory must find the program's alone.
[[gnu::tls_model("initial-exec")]] constinit thread_local std::uintptr_t last_made = 0;

std::size_t table_bytes(unsigned id) { return page_capacity(id) * sizeof(SampleRecord); }

// Without a lock: the region may have to grow. Samples are few and spread: of a page that was never touched little will
// be.
Slice memory_for_page(unsigned id) {
  return acquire_span(page_slices(id), 1, samples_every_block() ? Prefer::dirty : Prefer::clean).first;
}

// Null: no memory for what describes it.
Page* new_page(unsigned shard, unsigned id, Slice first) {
  auto* const records = static_cast<SampleRecord*>(internal_try_allocate(table_bytes(id)));
  if (!records) return nullptr;
  Page& page = *page_at(first);
  page.free_blocks = nullptr;
  page.carved = 0;
  page.size_class = static_cast<std::uint8_t>(id);
  page.inverse = inverse_of(class_bytes(id));
  page.shard.store(static_cast<std::uint16_t>(shard), std::memory_order_relaxed);
  page.records = records;
  set_handed_out(page, 0, 0);
  mark_later_slices(page, PageState::interior);
  page.state = PageState::sampled;
  push_page(the_pool.shards[shard].partial[id], page);
  return &page;
}

void release_page(Page& page) {
  page.state = PageState::none;
  mark_later_slices(page, PageState::none);
  internal_deallocate(page.records, table_bytes(page.size_class));
  page.remote.store(0, std::memory_order_relaxed);  // the next user of the page expects 0
  release_span(slice_of(&page), page_slices(page.size_class));
}

Block* take_block(Page& page) {
  if (Block* const block = page.free_blocks) {
    page.free_blocks = block->next;
    return block;
  }
  const unsigned index = page.carved;
  page.carved = static_cast<std::uint16_t>(index + 1);
  return reinterpret_cast<Block*>(page_memory(&page) + index * kBytesOfClass.of[page.size_class]);
}

// The class whose blocks are the cells that blocks of this one lie in.
unsigned cell_class(unsigned id) { return samples_every_block() ? id : class_of(std::bit_ceil(class_bytes(id))); }

}  // namespace

bool is_sampled_block(const Page& page, std::size_t offset) { return number_of_block(page, offset) != kNoBlock; }

namespace {

// Under the shard's lock: a page with a free block, made of `spare` where there is none. Null: there is no such memory.
Page* page_with_room(unsigned shard, unsigned cell, Slice& spare) {
  if (const Slice partial = the_pool.shards[shard].partial[cell]) return page_at(partial);
  Page* const made = spare ? new_page(shard, cell, spare) : nullptr;
  if (made) spare = 0;
  return made;
}

// The same, for a block.
void* take_sampled(unsigned number, unsigned cell, const SampleRecord& sample, Slice& spare) {
  Page* const page = page_with_room(number, cell, spare);
  if (!page) return nullptr;
  Shard& shard = the_pool.shards[number];
  Block* const block = take_block(*page);
  const unsigned handed_out = page->handed_out() + 1;
  set_handed_out(*page, handed_out, 0);
  if (handed_out == kCapacityOfClass.of[cell]) remove_page(shard.partial[cell], *page);
  ++shard.handed_out[sample.live_class - 1];
  ++shard.live[sample.live_class - 1];
  page->records[number_of_block(*page, block)] = sample;
  block->mark = 0;
  last_made = ~address_of(block);
  return block;
}

}  // namespace

void* allocate_sampled(std::size_t bytes, unsigned id, unsigned doublings) {
  SampleRecord sample;
  if (!capture_sample(bytes, doublings, sample)) return nullptr;
  sample.live_class = static_cast<std::uint16_t>(id + 1);
  // Samples are few: threads need not keep apart, and one page of each size is enough.
  const unsigned number = samples_every_block() ? static_cast<unsigned>(this_thread() >> 12) % kShards : 0;
  const unsigned cell = cell_class(id);
  Slice spare = 0;
  while (true) {
    void* block;
    {
      const LockedUnlessForking hold(the_pool.shards[number].lock);
      block = hold ? take_sampled(number, cell, sample, spare) : nullptr;
      if (!hold && !spare) return nullptr;
    }
    if (spare) release_span(spare, page_slices(cell));  // another thread's page had room, or memory is exhausted
    if (block) note_sample_born(block, sample, class_bytes(id));
    if (block || spare) return block;
    spare = memory_for_page(cell);
    if (!spare) return nullptr;
  }
}

namespace {

// --- Blocks freed while a thread forks: they wait in a stack for the next free. A child forgets them: it may have been
// cut off with a part of the stack.
void set_aside(Block* block) {
  block->next = the_pool.samples.set_aside_first.load(std::memory_order_relaxed);
  while (!the_pool.samples.set_aside_first.compare_exchange_weak(block->next, block, std::memory_order_release,
                                                                 std::memory_order_relaxed)) {
  }
}

// False: no live block starts there.
bool free_or_set_aside(Page& page, std::size_t offset) {
  LockedPage locked(page);
  const unsigned number = locked ? number_of_block(page, offset) : kNoBlock;
  if (number == kNoBlock) return false;
  if (!locked.is_locked()) {
    set_aside(reinterpret_cast<Block*>(page_memory(&page) + offset));
    return true;
  }
  Shard& shard = locked.shard();
  SampleRecord& record = page.records[number];
  if (!record.live_class) return false;
  auto* const block = reinterpret_cast<Block*>(page_memory(&page) + offset);
  note_sample_died(block);
  --shard.live[record.live_class - 1];
  record.live_class = 0;
  shard.temporary += ~address_of(block) == last_made;
  last_made = 0;
  block->next = page.free_blocks;
  page.free_blocks = block;
  const unsigned handed_out = page.handed_out() - 1;
  const bool was_full = handed_out + 1 == kCapacityOfClass.of[page.size_class];
  set_handed_out(page, handed_out, 0);
  if (was_full) push_page(shard.partial[page.size_class], page);
  if (handed_out == 0 && (page.next || page.previous)) {  // another page of the class has room
    remove_page(shard.partial[page.size_class], page);
    release_page(page);
  }
  return true;
}

// Stands apart, so that free_sampled saves no registers for it.
[[gnu::noinline]] void free_set_aside() {
  for (Block* block = the_pool.samples.set_aside_first.exchange(nullptr, std::memory_order_acquire); block;) {
    Block* const next = block->next;
    const auto [page, offset] = spot_of(block);
    free_or_set_aside(*page, offset);
    block = next;
  }
}

}  // namespace

bool free_sampled(Page& page, std::size_t offset) {
  if (the_pool.samples.set_aside_first.load(std::memory_order_relaxed)) [[unlikely]]
    free_set_aside();
  return free_or_set_aside(page, offset);
}

std::size_t live_sampled_bytes(const Page& page, std::size_t offset) {
  const LockedPage locked(page);
  if (!locked || !is_sampled_block(page, offset)) return 0;
  const SampleRecord& record = page.records[offset / class_bytes(page.size_class)];
  return record.live_class ? class_bytes(record.live_class - 1) : 0;
}

std::uint32_t site_of_sampled(const Page& page, std::size_t offset) {
  const LockedPage locked(page);
  return locked && is_sampled_block(page, offset) ? page.records[offset / class_bytes(page.size_class)].site : 0;
}

void note_sampled_size(Page& page, std::size_t offset, std::size_t bytes) {
  const LockedPage locked(page);
  page.records[offset / class_bytes(page.size_class)].requested_bytes = static_cast<std::uint32_t>(bytes);
  note_sample_resized(page_memory(&page) + offset, bytes);
}

namespace {
// The requested size follows from the slack.
void capture_large(Page& page, unsigned doublings) {
  SampleRecord sample;
  if (!capture_sample(0, doublings, sample)) return;
  page.born_ms = sample.born_ms;
  page.doublings = sample.doublings;
  page.forks = sample.forks;
  std::atomic_ref(page.site).store(sample.site, std::memory_order_relaxed);
  const std::uint64_t requested = page.bytes - page.slack;
  if (const SampleEvents* const events = sample.site ? sample_events() : nullptr)
    events->born(page_memory(&page), requested, sample.site, sample_weight(page.bytes, doublings));
}
}  // namespace

void forget_site(Page& page) {
  last_made = 0;
  page.born_ms = 0;
  std::atomic_ref(page.site).store(0, std::memory_order_relaxed);
}

void note_large_died(const Page& page) {
  if (page.site) note_sample_died(page_memory(&page));
}

void sample_large(Heap& heap, Page& page, std::size_t bytes) {
  if (is_always_sampled(page.bytes)) return capture_large(page, 0);
  heap.until_sample -= static_cast<std::int64_t>(bytes);
  if (!reach_sample(heap, 1)) return;
  const unsigned doublings = heap.pace.doublings;
  note_sample(heap);
  capture_large(page, doublings);
}

void sample_resized(Page& page) {
  if (page.site) return note_sample_resized(page_memory(&page), page.bytes - page.slack);
  if (is_always_sampled(page.bytes)) capture_large(page, 0);
}

namespace {

using Visit = void (*)(void* context, const Sample& sample);

// Under the lock of its shard.
[[gnu::cold]] void visit_page(const Page& page, Visit visit, void* context) {
  for (unsigned i = 0; i < page.carved; ++i) {
    const SampleRecord& record = page.records[i];
    if (!record.live_class) continue;
    const std::size_t bytes = class_bytes(record.live_class - 1);
    visit(context,
          {page_memory(&page) + i * class_bytes(page.size_class), bytes, record.requested_bytes, record.site,
           record.born_ms, sample_weight(bytes, record.doublings), record.forks != the_pool.samples.forks_so_far});
  }
}

// Pages of sampled blocks from `at` on, and samples among the large blocks on the way. The region is held meanwhile, so
// that no page becomes something else, and so no page's lock may be taken: that is done by the caller, page by page.
// Growth is looked at inside malloc, where the stack may be small: so these are few.
struct Found {
  static constexpr unsigned kPagesMax = 32, kLargeMax = 16;
  Slice pages[kPagesMax];
  Sample large[kLargeMax];
  unsigned page_count = 0, large_count = 0;
};

// False: a thread forks. A large block may just be made: its site is known last.
[[gnu::cold]] __attribute__((no_sanitize("thread"))) bool find_samples(Slice& at, Found& found, AtFork at_fork) {
  const RegionHeld held = at_fork == AtFork::wait ? RegionHeld() : RegionHeld(RegionHeld::UnlessForking());
  if (!held) return false;
  const Slice end = region_end();
  for (std::uint32_t slices; at < end && found.page_count < Found::kPagesMax && found.large_count < Found::kLargeMax;
       at += slices) {
    const Page& page = *page_at(at);
    const PageState state = page.state;
    slices = slices_to_next(page, state, end);
    if (state == PageState::sampled) found.pages[found.page_count++] = at;
    if (state != PageState::large) continue;
    const std::uint32_t site = std::atomic_ref(const_cast<Page&>(page).site).load(std::memory_order_relaxed);
    if (site)
      found.large[found.large_count++] = {page_memory(&page),
                                          page.bytes,
                                          page.bytes - page.slack,
                                          site,
                                          page.born_ms,
                                          sample_weight(page.bytes, page.doublings),
                                          page.forks != the_pool.samples.forks_so_far};
  }
  return true;
}

}  // namespace

[[gnu::cold]] bool visit_samples(Visit visit, void* context, AtFork at_fork) {
  for (Slice at = region_begin(); at < region_end();) {
    Found found;
    if (!find_samples(at, found, at_fork)) return false;
    for (unsigned i = 0; i < found.large_count; ++i) visit(context, found.large[i]);
    for (unsigned i = 0; i < found.page_count; ++i) {
      const Page& page = *page_at(found.pages[i]);
      const LockedPage locked(page, at_fork);
      if (!locked.is_locked()) return false;
      if (locked) visit_page(page, visit, context);
    }
  }
  return visit_samples_in_place(visit, context, at_fork);
}

__attribute__((no_sanitize("thread"))) void read_sampled(const Page& page, unsigned number, std::size_t& bytes,
                                                         std::size_t& requested_bytes, bool& live) {
  const SampleRecord& record = page.records[number];
  live = record.live_class != 0;
  if (!live) return;
  bytes = class_bytes(std::min<unsigned>(record.live_class, kClasses) - 1);
  requested_bytes = record.requested_bytes;
}

std::uint64_t temporary_blocks_ever() {
  std::uint64_t sum = 0;
  for (const Shard& shard : the_pool.shards) sum += shard.temporary;
  return sum;
}

std::uint64_t sampled_allocations(unsigned id) {
  std::uint64_t sum = 0;
  for (const Shard& shard : the_pool.shards) sum += shard.handed_out[id];
  return sum;
}

std::uint64_t live_sampled_blocks(unsigned id) {
  std::uint64_t sum = 0;
  for (const Shard& shard : the_pool.shards) sum += shard.live[id];
  return sum;
}

void samples_before_fork() {
  for (Shard& shard : the_pool.shards) shard.lock.lock_for_fork();
  samples_in_place_before_fork();
}

void samples_after_fork() {
  samples_in_place_after_fork();
  for (Shard& shard : the_pool.shards) shard.lock.unlock_after_fork();
}

void samples_after_fork_in_child() {
  the_pool.samples.set_aside_first.store(nullptr, std::memory_order_relaxed);
  ++the_pool.samples.forks_so_far;
  samples_after_fork();
}

}  // namespace cistern::host_pool
