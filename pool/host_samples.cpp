// See host_samples.hpp.
#include "pool/host_samples.hpp"

#include <algorithm>
#include <bit>

#include "pool/host_heap.hpp"
#include "pool/host_region.hpp"
#include "pool/internal_memory.hpp"
#include "pool/small_math.hpp"

namespace cistern::host_pool {
namespace {

constexpr unsigned kShards = 8;

// Written when the block is first handed out: those of blocks that were never carved are not even touched.
struct Record : SampleRecord {
  std::uint32_t live_class;  // 0: free; else one more than the class
};

// As Lock, but given back by a mere store: in `all` mode every malloc and free takes one, hardly ever a contended one,
// for a few dozen instructions.
class ShardLock {
 public:
  void lock() {
    locks_held = locks_held + 1;
    while (held_.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  void unlock() {
    held_.store(false, std::memory_order_release);
    locks_held = locks_held - 1;
  }

 private:
  std::atomic<bool> held_{false};
};

// Pages with free blocks are in the queue of their class; full ones in none.
struct alignas(64) Shard {
  ShardLock lock;
  Slice partial[kClasses] = {};
  std::uint64_t handed_out[kClasses] = {}, live[kClasses] = {};
};

constinit Shard shards[kShards];
constinit SamplePolicy policy = {};

// The side table's address stands in Page::remote: nobody frees these blocks remotely.
Record* records_of(const Page& page) { return reinterpret_cast<Record*>(page.remote.load(std::memory_order_relaxed)); }

// The lock of a page that was seen to be one of sampled blocks. Meanwhile it may have gone back, even be a heap's page:
// what is written in it is believed only as far as it holds under the lock.
class LockedPage {
 public:
  explicit LockedPage(const Page& page)
      : number_(page.heap.load(std::memory_order_relaxed)), shard_(shards[number_ % kShards]), hold_(shard_.lock) {
    is_sampled_ =
        number_ < kShards && page.state == State::sampled && page.heap.load(std::memory_order_relaxed) == number_;
  }
  explicit operator bool() const { return is_sampled_; }
  Shard& shard() { return shard_; }

 private:
  const unsigned number_;
  Shard& shard_;
  const Locked<ShardLock> hold_;
  bool is_sampled_;
};

std::size_t table_bytes(unsigned id) { return page_capacity(id) * sizeof(Record); }

Page* new_page(unsigned shard, unsigned id) {
  auto* const records = static_cast<Record*>(internal_try_allocate(table_bytes(id)));
  if (!records) return nullptr;
  // Samples are few and spread: of a page that was never touched little will be.
  const Span span = acquire_span(page_slices(id), 1, samples_every_block() ? Prefer::dirty : Prefer::clean);
  if (!span.first) {
    internal_deallocate(records, table_bytes(id));
    return nullptr;
  }
  Page& page = *page_at(span.first);
  page.free_blocks = nullptr;
  page.carved = 0;
  page.size_class = static_cast<std::uint8_t>(id);
  page.heap.store(static_cast<std::uint16_t>(shard), std::memory_order_relaxed);
  page.remote.store(address_of(records), std::memory_order_relaxed);
  set_handed_out(page, 0, 0);
  mark_later_slices(page, State::interior);
  page.state = State::sampled;
  push_page(shards[shard].partial[id], page);
  return &page;
}

void release_page(Page& page) {
  page.state = State::none;
  mark_later_slices(page, State::none);
  internal_deallocate(records_of(page), table_bytes(page.size_class));
  page.remote.store(0, std::memory_order_relaxed);
  release_span(slice_of(&page), page_slices(page.size_class));
}

Block* take_block(Page& page) {
  if (Block* const block = page.free_blocks) {
    page.free_blocks = block->next;
    return block;
  }
  const unsigned index = page.carved;
  page.carved = static_cast<std::uint16_t>(index + 1);
  return reinterpret_cast<Block*>(page_memory(&page) + index * class_bytes(page.size_class));
}

// The class whose blocks are the cells that blocks of this one lie in.
unsigned cell_class(unsigned id) { return samples_every_block() ? id : class_of(std::bit_ceil(class_bytes(id))); }

}  // namespace

bool is_sampled_block(const Page& page, std::size_t offset) {
  const std::size_t bytes = class_bytes(page.size_class);
  return offset % bytes == 0 && offset / bytes < page.carved;
}

[[gnu::hot]] void start_sampling(const SamplePolicy& chosen) {
  policy = chosen;
  sample_interval_bytes = chosen.interval_bytes;
  if (Heap* const heap = this_heap()) {
    put_back_lists(*heap);
    heap->until_sample = draw_distance(heap->random);
  }
}

std::int64_t draw_distance(std::uint64_t& random) {
  if (!sample_interval_bytes) return INT64_MAX;
  if (samples_every_block()) return 0;
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  const double uniform = (static_cast<double>(random >> 11) + 0.5) * 0x1p-53;  // in (0, 1)
  constexpr double kLongest = 0x1p62;
  const double distance = -natural_log(uniform) * static_cast<double>(sample_interval_bytes);
  return static_cast<std::int64_t>(std::min(distance, kLongest)) + 1;
}

double sample_weight(std::size_t bytes) {
  if (samples_every_block()) return 1;
  return 1 / one_minus_exp(static_cast<double>(bytes) / static_cast<double>(sample_interval_bytes));
}

bool capture_sample(std::size_t bytes, SampleRecord& record) {
  if (!policy.capture(&record.site)) return false;
  record.requested_bytes = static_cast<std::uint32_t>(bytes);
  record.born_ms = policy.now_ms();
  return true;
}

void* allocate_sampled(std::size_t bytes, unsigned id) {
  SampleRecord sample;
  if (!capture_sample(bytes, sample)) return nullptr;
  // Samples are few: threads need not keep apart, and one page of each size is enough.
  const unsigned number = samples_every_block() ? static_cast<unsigned>(this_thread() >> 12) % kShards : 0;
  const unsigned cell = cell_class(id);
  Shard& shard = shards[number];
  const Locked hold(shard.lock);
  Page* const page = shard.partial[cell] ? page_at(shard.partial[cell]) : new_page(number, cell);
  if (!page) return nullptr;
  Block* const block = take_block(*page);
  const unsigned handed_out = page->handed_out() + 1;
  set_handed_out(*page, handed_out, 0);
  if (handed_out == kCapacityOfClass.of[cell]) remove_page(shard.partial[cell], *page);
  ++shard.handed_out[id];
  ++shard.live[id];
  const std::size_t index = (address_of(block) - address_of(page_memory(page))) / class_bytes(cell);
  records_of(*page)[index] = {sample, id + 1};
  block->mark = 0;
  return block;
}

bool free_sampled(Page& page, std::size_t offset) {
  LockedPage locked(page);
  if (!locked || !is_sampled_block(page, offset)) return false;
  Shard& shard = locked.shard();
  Record& record = records_of(page)[offset / class_bytes(page.size_class)];
  if (!record.live_class) return false;
  --shard.live[record.live_class - 1];
  record.live_class = 0;
  auto* const block = reinterpret_cast<Block*>(page_memory(&page) + offset);
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

std::size_t live_sampled_bytes(const Page& page, std::size_t offset) {
  const LockedPage locked(page);
  if (!locked || !is_sampled_block(page, offset)) return 0;
  const Record& record = records_of(page)[offset / class_bytes(page.size_class)];
  return record.live_class ? class_bytes(record.live_class - 1) : 0;
}

void note_sampled_size(Page& page, std::size_t offset, std::size_t bytes) {
  const LockedPage locked(page);
  records_of(page)[offset / class_bytes(page.size_class)].requested_bytes = static_cast<std::uint32_t>(bytes);
}

void sample_large(Page& page, std::size_t bytes) {
  page.site = page.born_ms = 0;
  if (!sample_interval_bytes) return;
  Heap* heap = this_heap();
  if (!heap) heap = start_heap();
  if (!heap) return;
  if (!samples_every_block()) {
    heap->until_sample -= static_cast<std::int64_t>(std::min<std::size_t>(bytes, INT64_MAX / 2));
    if (heap->until_sample > 0) return;
    heap->until_sample = draw_distance(heap->random);
  }
  SampleRecord sample;
  if (!capture_sample(0, sample)) return;  // what was asked for follows from the slack
  page.born_ms = sample.born_ms;
  page.site = sample.site;
}

[[gnu::cold]] void visit_samples(void (*visit)(void* context, const Sample& sample), void* context) {
  const Slice end = region_end();
  for (Slice at = region_begin(); at < end;) {
    Page& page = *page_at(at);
    const State state = page.state;
    if (state == State::large && page.site) {
      visit(context, {page_memory(&page), page.bytes, page.bytes - page.slack, page.site, page.born_ms,
                      sample_weight(page.bytes)});
    } else if (state == State::sampled) {
      const LockedPage locked(page);
      for (unsigned i = 0; locked && i < page.carved; ++i) {
        const Record& record = records_of(page)[i];
        if (!record.live_class) continue;
        const std::size_t bytes = class_bytes(record.live_class - 1);
        visit(context, {page_memory(&page) + i * class_bytes(page.size_class), bytes, record.requested_bytes,
                        record.site, record.born_ms, sample_weight(bytes)});
      }
    }
    at += (state == State::free || state == State::large) && page.slices ? page.slices : 1;
  }
  visit_samples_in_place(visit, context);
}

std::uint64_t sampled_allocations(unsigned id) {
  std::uint64_t sum = 0;
  for (const Shard& shard : shards) sum += shard.handed_out[id];
  return sum;
}

std::uint64_t live_sampled_blocks(unsigned id) {
  std::uint64_t sum = 0;
  for (const Shard& shard : shards) sum += shard.live[id];
  return sum;
}

void samples_before_fork() {
  for (Shard& shard : shards) shard.lock.lock();
  samples_in_place_before_fork();
}

void samples_after_fork() {
  samples_in_place_after_fork();
  for (Shard& shard : shards) shard.lock.unlock();
}

}  // namespace cistern::host_pool
