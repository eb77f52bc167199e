// See segments.hpp.
#include "shim/library/segments.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "shim/library/answers.hpp"
#include "shim/library/pool_accounts.hpp"
#include "shim/process/kind.hpp"

namespace cistern::library {

using SegmentsPool = ranges::SegmentPool<SegmentsOfKind>;

struct SegmentsAt {
  SegmentsAt(const KindMemory& memory, const Place& place, std::atomic<std::uint64_t>& made)
      : source(memory, place, made), pool(source, {}) {}

  SegmentsOfKind source;
  SegmentsPool pool;
  Lock order_lock;  // fences of one order come to the pool in that order
  SegmentsAt* next = nullptr;
  std::atomic<int> users{0};  // threads in it: it is neither forgotten nor given back meanwhile
};

namespace {

// One that use() gave, for as long as this lives.
class Used {
 public:
  explicit Used(SegmentsAt* at) : at_(at) {}
  ~Used() { at_->users.fetch_sub(1); }
  Used(const Used&) = delete;
  Used& operator=(const Used&) = delete;
  SegmentsAt& operator*() const { return *at_; }
  SegmentsAt* operator->() const { return at_; }

 private:
  SegmentsAt* const at_;
};

const KindSegments& kind_of(const SegmentsAt& at) { return *at.source.memory().segments; }

std::uint64_t trim_for_kinds(Unsettled unsettled) {
  return trim_all_segments(nullptr,
                           unsettled == Unsettled::too ? Segments::unsettled_too : Segments::all_without_blocks);
}

std::uint64_t trim(SegmentsPool& pool, Segments which) {
  if (which == Segments::not_needed_since_the_call_before) return pool.trim(pool.take_recent_peak());
  const std::uint64_t settled = pool.trim(0, ranges::Asked::wait);
  return which == Segments::unsettled_too ? settled + pool.trim_unsettled() : settled;
}

// Puts the bytes of a block that has ended where they may be used again.
bool free_bytes(SegmentsAt& at, std::uintptr_t first, CutEnd& end) {
  if (end.is_retired) return at.pool.retire(first);
  if (!end.work_waits && end.others.empty()) return at.pool.deallocate(first, ranges::kAnyOrder, {}, false);
  const bool is_ordered = end.others.empty();
  WorkFence fence = std::move(end.others);
  const Place& place = at.source.place();
  const Locked hold(at.order_lock);
  if (end.work_waits) fence.push_back({place.context, kind_of(at).now(place)});
  return at.pool.deallocate(first, is_ordered ? end.order : ranges::kNoOrder, std::move(fence), true);
}

// Fewer waiting bytes are taken as they were found last.
constexpr std::uint64_t kSettledFrom = std::uint64_t{32} << 20;

std::uint64_t bytes_to_cut(const BlockRequest& request) {
  return request.alignment <= ranges::kGranule ? request.bytes : request.bytes + request.alignment;
}

}  // namespace

Acquired<std::uint64_t, SegmentsOfKind::Error> SegmentsOfKind::acquire(std::uint64_t bytes, Shortage shortage) {
  std::uintptr_t first = 0;
  native = 0;
  const cistern_status status = memory_.segments->acquire(place_, bytes, shortage, &first);
  if (status == CISTERN_OK) made_.fetch_add(1, std::memory_order_relaxed);
  return {first, {status, native}, status == CISTERN_OK};
}

// --- Places
// One whose context has ended, and that no thread is in. Under the lock.
SegmentsAt* PoolSegments::unused_dead() {
  for (SegmentsAt* at = first_; at; at = at->next)
    if (!at->users.load() && !kind_of(*at).is_there(at->source.place())) return at;
  return nullptr;
}

// Blocks that went with their context still name this one.
SegmentsAt* PoolSegments::use(SegmentsAt* at) {
  const Locked hold(lock_);
  at->users.fetch_add(1);
  return at;
}

SegmentsAt* PoolSegments::use(const KindMemory& memory, const Place& place) {
  const Locked hold(lock_);
  SegmentsAt* at = first_;
  while (at && at->source.place() != place) at = at->next;
  if (!at) {
    at = unused_dead();
    SegmentsAt* const next = at ? at->next : first_;
    const bool is_new = !at;
    if (at)
      at->~SegmentsAt();
    else
      at = static_cast<SegmentsAt*>(internal_allocate(sizeof(SegmentsAt)));
    new (at) SegmentsAt(memory, place, made_);
    at->next = next;
    if (is_new) first_ = at;
  }
  at->users.fetch_add(1);
  return at;
}

void PoolSegments::use_all(Vector<SegmentsAt*>& used) {
  const Locked hold(lock_);
  for (SegmentsAt* at = first_; at; at = at->next) {
    at->users.fetch_add(1);
    used.push_back(at);
  }
}

void PoolSegments::end(Ended* ended) {
  const Locked hold(lock_);
  ended->first_ = std::exchange(first_, nullptr);
  made_ = 0;
}

// Another thread may be trimming.
PoolSegments::Ended::~Ended() {
  while (SegmentsAt* const at = first_) {
    while (at->users.load()) sched_yield();
    first_ = at->next;
    at->~SegmentsAt();
    internal_deallocate(at, sizeof(SegmentsAt));
  }
}

// --- Blocks
cistern_status PoolSegments::take(const BlockRequest& request, Taken* taken) {
  if (!segments_trim.load(std::memory_order_relaxed)) segments_trim.store(trim_for_kinds, std::memory_order_relaxed);
  const KindSegments& kind = *request.memory->segments;
  Place place;
  if (const cistern_status status = kind.find(request, &place); status != CISTERN_OK) return status;
  const Used at(use(*request.memory, place));
  const bool is_ordered = request.order.of_stream && kind.order_of;
  const ranges::Order order = is_ordered ? kind.order_of(place, request.order.stream) : ranges::kAnyOrder;
  const std::uint64_t bytes = bytes_to_cut(request);
  const auto answer = at->pool.allocate(bytes, order);
  if (!answer.ok) {
    if (kind.failed && SegmentsOfKind::out_of_memory(answer.error)) kind.failed(place, bytes);
    return refused(answer.error.code, answer.error.status);
  }
  const std::uint64_t cut_bytes = (bytes + ranges::kGranule - 1) / ranges::kGranule * ranges::kGranule;
  const cistern_status status = kind.begin(place, {answer.first, cut_bytes, bytes, answer.hit});
  if (status != CISTERN_OK) {
    at->pool.deallocate(answer.first, ranges::kAnyOrder, {}, false);
    return status;
  }
  const std::size_t alignment = std::max<std::size_t>(request.alignment, 1);
  taken->base = answer.first;
  taken->address = (answer.first + alignment - 1) & ~(alignment - 1);
  taken->was_kept = answer.hit;
  taken->device = request.where & CISTERN_ON_DEVICE ? request.device : CISTERN_CURRENT;
  taken->segments = &*at;
  return CISTERN_OK;
}

cistern_status PoolSegments::give(const Taken& taken, void* queue, InOrder order) {
  const Used at(use(taken.segments));
  CutEnd end;
  end.waiting_bytes = at->pool.waiting_bytes();
  if (end.waiting_bytes > kSettledFrom) {
    at->pool.settle();
    end.waiting_bytes = at->pool.waiting_bytes();
  }
  const cistern_status status = kind_of(*at).end(at->source.place(), taken.base, queue, order, &end);
  if (status != CISTERN_OK) return status;
  if (end.waiting_bytes && !end.work_waits) at->pool.settle();  // it has been waited for
  free_bytes(*at, taken.base, end);
  return CISTERN_OK;
}

cistern_status PoolSegments::reserve(const BlockRequest& request, std::size_t count) {
  Place place;
  std::size_t all = 0;
  if (__builtin_mul_overflow(request.bytes, count, &all)) return CISTERN_NO_MEMORY;
  if (const cistern_status status = request.memory->segments->find(request, &place); status != CISTERN_OK)
    return status;
  const Used at(use(*request.memory, place));
  const SegmentsOfKind::Error error = at->pool.reserve(bytes_to_cut(request), count);
  return error.status == CISTERN_OK ? CISTERN_OK : refused(error.code, error.status);
}

// --- All of them
PoolSegments::Figures PoolSegments::figures() {
  Figures all;
  all.made = made_.load(std::memory_order_relaxed);
  const Locked hold(lock_);
  for (SegmentsAt* at = first_; at; at = at->next) {
    if (!kind_of(*at).is_there(at->source.place())) continue;
    const ranges::SegmentFigures of = at->pool.figures();
    all.segments += of.segments;
    all.bytes += of.mapped_bytes;
  }
  return all;
}

Vector<PoolSegments::Segment> PoolSegments::list() {
  Vector<Segment> all;
  const Locked hold(lock_);
  for (SegmentsAt* at = first_; at; at = at->next) {
    const KindSegments& kind = kind_of(*at);
    const Place& place = at->source.place();
    if (!kind.is_there(place)) continue;
    const int device = kind.device_of ? kind.device_of(place) : CISTERN_CURRENT;
    for (const auto& [first, bytes] : at->pool.segments()) all.push_back({first, bytes, device});
  }
  return all;
}

std::uint64_t trim_all_segments(const KindMemory* memory, Segments which) {
  struct Found {
    const KindMemory* memory;
    Vector<SegmentsAt*> used;
  } found{memory, {}};
  visit_accounts(
      [](Account& account, void* context) {
        auto& [memory, used] = *static_cast<Found*>(context);
        if (!memory || account.memory == memory) account.segments.use_all(used);
      },
      &found);
  std::uint64_t bytes = 0;
  const bool is_short = which != Segments::not_needed_since_the_call_before;
  for (SegmentsAt* const at : found.used)
    if (kind_of(*at).is_there(at->source.place())) bytes += trim(at->pool, which);
  for (SegmentsAt* const one : found.used) {
    const Used at(one);
    if (is_short && kind_of(*at).is_there(at->source.place())) at->pool.wait_for_returns();
  }
  return bytes;
}

// --- Fork
void PoolSegments::before_fork() {
  lock_.lock_for_fork();
  for (SegmentsAt* at = first_; at; at = at->next) {
    at->order_lock.lock_for_fork();
    at->pool.before_fork();
  }
}

void PoolSegments::after_fork() {
  for (SegmentsAt* at = first_; at; at = at->next) {
    at->pool.after_fork();
    at->order_lock.unlock_after_fork();
  }
  lock_.unlock_after_fork();
}

void PoolSegments::after_fork_in_child() {
  for (SegmentsAt* at = first_; at; at = at->next) at->users = 0;
  made_ = 0;
}

}  // namespace cistern::library
