// See recording_chunks.hpp.
#include "stats/recording_chunks.hpp"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <iterator>
#include <new>

#include "pool/base/blocked_signals.hpp"
#include "pool/base/clock.hpp"
#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/own_mapping.hpp"
#include "pool/base/system_call.hpp"
#include "stats/counters.hpp"
#include "stats/recording_clock.hpp"
#include "stats/recording_file.hpp"
#include "stats/recording_thinning.hpp"

namespace cistern::recording {
namespace {

using Chunk = std::uint32_t;  // its number in the file, from 1; 0: none
// How far the file grows at a time, and how many of the oldest chunks give way at a time.
constexpr Chunk kGrowMin = 4, kGrowMax = 64, kBatchMin = 2, kBatchMax = 128;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
// With fewer, the slots would take them from each other.
constexpr Chunk kFewest = 32;

struct Chunks {
  Lock lock;
  const Plan* plan = nullptr;
  File file;
  const char* path = nullptr;
  std::atomic<Header*> header{nullptr};
  std::uint64_t mapped_bytes = 0;
  Chunk most = 0, grown = 0, used = 0;  // `most`: as far as it may grow
  Chunk free = 0, free_count = 0;       // linked by their heads
  Chunk kept = 0;
  bool closed = false;  // no more are taken
  std::atomic<Step> failed_step{Step::none};
  std::atomic<int> error{0};
};
constinit Chunks chunks;

Header* header() { return chunks.header.load(std::memory_order_acquire); }

ChunkHead& at(Chunk chunk) {
  return *reinterpret_cast<ChunkHead*>(reinterpret_cast<char*>(header()) + kHeaderBytes + (chunk - 1) * kChunkBytes);
}
Chunk number_of(const ChunkHead& head) {
  return static_cast<Chunk>((reinterpret_cast<const char*>(&head) - reinterpret_cast<char*>(header()) - kHeaderBytes) /
                            kChunkBytes) +
         1;
}
std::uint64_t file_bytes(Chunk count) { return kHeaderBytes + std::uint64_t{count} * kChunkBytes; }

// For good.
void close() {
  chunks.closed = true;
  stop();
}

void note_trouble(Step step, int error) {
  chunks.error = error;
  chunks.failed_step = step;
}

// --- The file
// As much as there is room for, with a 0 at its end. Returns the end.
char* copy_text(char* to, char* end, const char* text) {
  while (to + 1 < end && *text) *to++ = *text++;
  return to;
}

void copy_words(char* to, char* end, char* const* words) {
  for (bool first = true; words && *words; ++words, first = false) {
    if (!first) to = copy_text(to, end, " ");
    to = copy_text(to, end, *words);
  }
}

void fill(Header& made, const Plan& plan) {
  made.version = kVersion;
  made.header_bytes = kHeaderBytes;
  made.chunk_bytes = kChunkBytes;
  made.pid = static_cast<std::uint32_t>(this_process());
  made.start_unix_ns = clock_ns(CLOCK_REALTIME) - nanoseconds_since_start();
  made.zero_ns = the_clock.first_ns;
  made.host_sample_bytes = plan.host_sample_bytes;
  copy_text(std::begin(made.library_version), std::end(made.library_version), CISTERN_VERSION);
  copy_words(std::begin(made.command), std::end(made.command), plan.arguments);
  std::copy_n(kMagic, sizeof kMagic, made.magic);
}

int make_at_first_free(const char* const* path) {
  int failure = EEXIST;
  for (; failure == EEXIST && *path; ++path)
    if ((failure = chunks.file.make(*path)) == 0) chunks.path = *path;
  return failure;
}

// 0, or errno.
int make() {
  const Plan& plan = *chunks.plan;
  if (const int failure = make_at_first_free(plan.paths)) return failure;
  const auto most = static_cast<Chunk>((std::max(plan.bytes_max, kBytesMin) - kHeaderBytes) / kChunkBytes);
  int failure = chunks.file.grow(0, file_bytes(kGrowMin));
  void* mapped = nullptr;
  if (!failure) mapped = chunks.file.map(file_bytes(most), failure);
  if (failure) {
    chunks.file.remove();
    return failure;
  }
  chunks.mapped_bytes = file_bytes(most);
  chunks.most = most;
  chunks.grown = kGrowMin;
  fill(*static_cast<Header*>(mapped), plan);
  chunks.header.store(static_cast<Header*>(mapped), std::memory_order_release);
  return 0;
}

bool is_made() {
  if (header()) return true;
  if (const int failure = make()) {
    note_trouble(Step::making, failure);
    close();
    return false;
  }
  return true;
}

void grow() {
  const Chunk grown = std::min(chunks.most, chunks.grown + std::clamp(chunks.grown, kGrowMin, kGrowMax));
  if (const int failure = chunks.file.grow(file_bytes(chunks.grown), file_bytes(grown))) {
    note_trouble(Step::growing, failure);
    chunks.most = chunks.grown;
    if (chunks.most < kFewest) close();
  } else {
    chunks.grown = grown;
  }
}

// --- Free chunks, under the lock
Chunk available() { return chunks.free_count + chunks.most - chunks.used; }

ChunkHead* take() {
  if (const Chunk first = chunks.free) {
    ChunkHead& head = at(first);
    chunks.free = static_cast<Chunk>(head.unused[0]);
    --chunks.free_count;
    return &head;
  }
  if (chunks.used == chunks.grown && chunks.grown < chunks.most) grow();
  if (chunks.used == chunks.grown) return nullptr;
  ChunkHead& head = at(++chunks.used);
  // All its pages by one call, rather than one after the other by faults. Older systems cannot.
  system_call(SYS_madvise, reinterpret_cast<std::uintptr_t>(&head), kChunkBytes, kPopulateWrite);
  return &head;
}

void give_back(ChunkHead& head) {
  head.kind.store(ChunkKind::none, std::memory_order_release);
  head.unused[0] = chunks.free;
  chunks.free = number_of(head);
  ++chunks.free_count;
}

// --- Thinning
Chunk batch_chunks() { return std::clamp(chunks.most / 8, kBatchMin, kBatchMax); }

// Those of the file that `thin` may look at, and room for as many fresh ones; in memory of their time.
class ThinningTables {
 public:
  ThinningTables() : first_(static_cast<ChunkHead**>(internal_try_allocate(bytes()))) {}
  ~ThinningTables() {
    if (first_) internal_deallocate(first_, bytes());
  }
  ThinningTables(const ThinningTables&) = delete;
  ThinningTables& operator=(const ThinningTables&) = delete;
  bool are_there() const { return first_; }
  ChunkHead** with_events() const { return first_; }
  ChunkHead** fresh() const { return first_ + most_; }

 private:
  std::size_t bytes() const { return 2 * most_ * sizeof(ChunkHead*); }
  const std::size_t most_ = chunks.most;
  ChunkHead** first_;
};

// Moves those to thin to the front, in order of time: what was kept before, and the oldest others. `until` gets the
// moment before which nothing is in any other chunk.
std::size_t choose(std::span<ChunkHead*> with_events, std::ptrdiff_t batch, std::uint64_t& until) {
  const auto is_earlier = [](const ChunkHead* a, const ChunkHead* b) { return a->first_time < b->first_time; };
  ChunkHead** const others = std::partition(with_events.data(), with_events.data() + with_events.size(),
                                            [](const ChunkHead* head) { return head->kind.load() == ChunkKind::kept; });
  ChunkHead** const end = with_events.data() + with_events.size();
  std::make_heap(others, end, is_earlier);  // no recursion: the program's stack may be small
  std::sort_heap(others, end, is_earlier);
  ChunkHead** const batch_end = others + std::min(end - others, batch);
  if (batch_end != end) until = std::min(until, (*batch_end)->first_time);
  std::make_heap(with_events.data(), batch_end, is_earlier);
  std::sort_heap(with_events.data(), batch_end, is_earlier);
  return static_cast<std::size_t>(batch_end - with_events.data());
}

// In one step for whoever reads the file.
void put_in_place_of(std::span<ChunkHead* const> batch, std::span<ChunkHead* const> thinned, std::uint64_t dropped,
                     std::uint64_t until) {
  const std::uint64_t next = header()->epoch.load() + 1;
  for (ChunkHead* const head : batch) head->dead_epoch = next;
  for (ChunkHead* const head : thinned) head->kind.store(ChunkKind::kept, std::memory_order_release);
  header()->thinned_events.fetch_add(dropped);
  header()->thinned_until = until;
  header()->epoch.store(next, std::memory_order_release);
  for (ChunkHead* const head : batch) give_back(*head);
  chunks.kept = static_cast<Chunk>(thinned.size());
}

enum class Thinning { done, in_vain, not_now };
// In vain: these chunks are full of live blocks or overlap others in time; or memory is exhausted.
Thinning thin_oldest(ThinningTables& tables, Chunk most) {
  std::uint64_t until = ticks_now();
  if (!pass_all_slots()) return Thinning::not_now;
  std::size_t count = 0;
  for (Chunk chunk = 1; chunk <= chunks.used; ++chunk) {
    const ChunkKind kind = at(chunk).kind.load(std::memory_order_acquire);
    if (kind == ChunkKind::events || kind == ChunkKind::kept) tables.with_events()[count++] = &at(chunk);
  }
  const std::size_t batch_count = choose({tables.with_events(), count}, most, until);
  const std::span<ChunkHead* const> batch(tables.with_events(), batch_count);
  if (!detach_slots_from(batch)) return Thinning::not_now;
  std::size_t fresh = 0;
  while (fresh <= batch_count && fresh < chunks.most) {
    ChunkHead* const head = take();
    if (!head) break;
    head->committed.store(0, std::memory_order_relaxed);
    head->born_epoch = header()->epoch.load() + 1;
    head->dead_epoch = 0;
    tables.fresh()[fresh++] = head;
  }
  const auto thinned = thin(batch, until, {tables.fresh(), fresh});
  const std::size_t kept = thinned ? thinned->chunks : 0;
  if (thinned) put_in_place_of(batch, {tables.fresh(), kept}, thinned->dropped_events, until);
  for (std::size_t i = kept; i < fresh; ++i) give_back(*tables.fresh()[i]);
  return thinned && kept < batch_count ? Thinning::done : Thinning::in_vain;
}

// The rest of a batch is written down before the batch goes.
Thinning thin_oldest() {
  ThinningTables tables;
  Thinning ended = Thinning::in_vain;
  if (!tables.are_there()) return ended;
  for (Chunk most = batch_chunks(); most < 2 * chunks.used && ended == Thinning::in_vain; most *= 2)
    ended = thin_oldest(tables, most);
  return ended;
}

bool thinning_is_due() { return available() <= chunks.kept + batch_chunks() + 1; }

}  // namespace

// A signal handler that came in here might fork, and a fork takes locks whose holders wait for this one.
ChunkHead* take_chunk() {
  const SignalsBlockedUnderLocks blocked;
  const Locked hold(chunks.lock);
  if (chunks.closed || !chunks.plan || !is_made()) return nullptr;
  const Thinning thinned = thinning_is_due() ? thin_oldest() : Thinning::done;
  if (thinned == Thinning::done) return take();
  if (thinned == Thinning::not_now) return nullptr;
  note_trouble(Step::thinning, 0);
  close();
  return nullptr;
}

void give_back_chunk(ChunkHead& chunk) {
  const SignalsBlockedUnderLocks blocked;
  const Locked hold(chunks.lock);
  give_back(chunk);
}

void begin_chunk(ChunkHead& chunk, ChunkKind kind, std::uint64_t now) {
  header()->ns_per_tick.store(nanoseconds_per_tick(), std::memory_order_relaxed);
  chunk.committed.store(0, std::memory_order_relaxed);
  chunk.first_time = now;
  chunk.born_epoch = chunk.dead_epoch = 0;
  chunk.kind.store(kind, std::memory_order_release);
}

void count_lost() {
  Header* const of = header();
  if (!of) return;
  std::uint64_t never = 0;
  of->lost_since_ns.compare_exchange_strong(never, std::max<std::uint64_t>(nanoseconds_since_start(), 1));
  of->lost_events.fetch_add(1, std::memory_order_relaxed);
}

const char* file_path() { return header() ? chunks.path : nullptr; }

Trouble trouble() { return {chunks.failed_step, chunks.error}; }

void plan_chunks(const Plan* plan) { chunks.plan = plan; }

void note_stopped() {
  if (Header* const of = header()) of->stopped_ns = std::max<std::uint64_t>(nanoseconds_since_start(), 1);
}

bool end_chunks() {
  const Locked hold(chunks.lock);
  chunks.closed = true;
  return header();
}

void end_file(std::span<const std::uint8_t> names) {
  const std::uint64_t end = file_bytes(chunks.used);
  chunks.file.cut(end);
  if (!names.empty() && !chunks.file.append(end, names)) {
    header()->names_at = end;
    header()->names_bytes = names.size();
  }
  header()->ns_per_tick = nanoseconds_per_tick();
  header()->ended_ns = std::max<std::uint64_t>(nanoseconds_since_start(), 1);
}

void leave_chunks_in_child() {
  if (chunks.lock.held_elsewhere()) new (&chunks.lock) Lock;
  chunks.closed = true;
  if (header()) map_own_memory(chunks.mapped_bytes, header(), MAP_FIXED | MAP_NORESERVE);
}

void forget_chunks_in_child(const Plan& plan) {
  Header* const of_parent = header();
  const std::uint64_t bytes = chunks.mapped_bytes;
  new (&chunks.lock) Lock;
  chunks.plan = &plan;
  chunks.path = nullptr;
  chunks.header = nullptr;
  chunks.most = chunks.grown = chunks.used = chunks.free = chunks.free_count = chunks.kept = 0;
  chunks.closed = false;
  chunks.failed_step = Step::none;
  if (of_parent) unmap_own_memory(of_parent, bytes);
}

}  // namespace cistern::recording
