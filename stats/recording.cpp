// See recording.hpp.
#include "stats/recording.hpp"

#include <sys/mman.h>
#include <sys/single_threaded.h>

#include <algorithm>
#include <new>
#include <utility>

#include "pool/base/lock.hpp"
#include "pool/base/own_mapping.hpp"
#include "pool/base/page_size.hpp"
#include "stats/recording_chunks.hpp"
#include "stats/recording_clock.hpp"
#include "stats/recording_definitions.hpp"

namespace cistern::recording {
namespace {

// Threads take turns with the slots: so few chunks are open, whatever the number of threads that come and go.
constexpr unsigned kSlots = 16;

struct alignas(64) Slot {
  SpinLock lock;
  ChunkHead* chunk;  // null: none yet, or thinning took it
  std::size_t used;
  Before before;
};
constinit Slot slots[kSlots] = {};

constinit std::atomic<std::uint32_t> threads_known{0};
// Its number in the file, from 1 (0: none yet), and a bit while it writes: a signal handler that finds that set records
// nothing. One word, since every thread of every process has it.
constexpr std::uint32_t kWriting = std::uint32_t{1} << 31;
[[gnu::tls_model("initial-exec")]] constinit thread_local std::uint32_t of_thread = 0;

void number_this_thread() {
  const std::uint32_t number = threads_known.fetch_add(1, std::memory_order_relaxed) + 1;
  of_thread = number | kWriting;
  define_thread(number);
}

// A thread that is alone needs no lock. False: a signal handler forks that interrupted who has it.
class LockedSlot {
 public:
  LockedSlot(Slot& slot, bool alone) : slot_(slot), locks_(!alone), ok_(alone || slot.lock.lock_unless_forking()) {}
  ~LockedSlot() {
    if (locks_ && ok_) slot_.lock.unlock();
  }
  LockedSlot(const LockedSlot&) = delete;
  LockedSlot& operator=(const LockedSlot&) = delete;
  explicit operator bool() const { return ok_; }

 private:
  Slot& slot_;
  const bool locks_, ok_;
};

bool has_room(const Slot& slot) { return slot.chunk && slot.used + kEventBytesMax <= kRoom; }

// Under the slot's lock, so that no event of a chunk is earlier than the chunk.
void open_chunk(Slot& slot, ChunkHead& chunk) {
  const std::uint64_t now = ticks_now();
  begin_chunk(chunk, ChunkKind::events, now);
  slot.chunk = &chunk;
  slot.used = 0;
  slot.before = {.time = now};
}

void put(Slot& slot, Event& event, bool alone) {
  event.time = std::max(ticks_now(!alone), slot.before.time);  // clocks of processors may differ
  auto* const first = reinterpret_cast<std::uint8_t*>(slot.chunk + 1);
  slot.used = static_cast<std::size_t>(put_event(first + slot.used, event, slot.before) - first);
  slot.chunk->committed.store(static_cast<std::uint32_t>(slot.used), std::memory_order_release);
}

// False: there is no chunk to be had, or the slot is not.
bool put_into(Slot& slot, Event& event) {
  const bool alone = __libc_single_threaded;
  bool is_put = false;
  ChunkHead* spare = nullptr;
  do {
    const LockedSlot hold(slot, alone);
    if (!hold) break;
    if (spare && !has_room(slot)) open_chunk(slot, *std::exchange(spare, nullptr));
    is_put = has_room(slot);
    if (is_put) [[likely]]
      put(slot, event, alone);
  } while (!is_put && (spare = take_chunk()));  // not under the slot's lock: thinning takes that
  if (spare) [[unlikely]]
    give_back_chunk(*spare);  // another thread of this slot was faster
  return is_put;
}

void record_here(const Kind& kind, Event& event) {
  if (of_thread & kWriting) return count_lost();
  of_thread = of_thread | kWriting;
  if (!are_defined(kind, event.site)) [[unlikely]]
    define(kind, event.site);
  event.kind = kind.number;
  if (of_thread == kWriting) [[unlikely]]
    number_this_thread();
  event.thread = of_thread & ~kWriting;
  if (!put_into(slots[event.thread % kSlots], event)) count_lost();
  of_thread = event.thread;
}

}  // namespace

// In the first two all that the event is not is known to the compiler.
[[gnu::noinline, gnu::flatten]] void record_block(const Kind& kind, const void* address, std::uint64_t bytes,
                                                  SiteId site, std::uint64_t weight) {
  Event event{.type = EventType::allocation,
              .site = site,
              .address = reinterpret_cast<std::uintptr_t>(address),
              .bytes = bytes,
              .weight = weight};
  record_here(kind, event);
}

[[gnu::noinline, gnu::flatten]] void record_end(const Kind& kind, const void* address) {
  Event event{.type = EventType::free, .address = reinterpret_cast<std::uintptr_t>(address)};
  record_here(kind, event);
}

[[gnu::noinline]] void record(const Kind& kind, Event&& event) { record_here(kind, event); }

void start(const Plan& plan) {
  auto* const page = static_cast<Switch*>(map_own_memory(page_bytes()));
  if (!page) return;
  system_call(SYS_madvise, reinterpret_cast<std::uintptr_t>(page), page_bytes(), MADV_WIPEONFORK);
  start_ticks(plan.clock_is_processors);
  plan_chunks(&plan);
  page->on = true;
  the_switch = page;
}

void stop() {
  if (Switch* const one = the_switch.load()) one->on = false;
  note_stopped();
}

bool pass_all_slots() {
  for (Slot& slot : slots)
    if (!LockedSlot(slot, false)) return false;
  return true;
}

bool detach_slots_from(std::span<ChunkHead* const> chunks) {
  for (Slot& slot : slots) {
    const LockedSlot hold(slot, false);
    if (!hold) return false;
    for (const ChunkHead* const chunk : chunks)
      if (slot.chunk == chunk) slot.chunk = nullptr;
  }
  return true;
}

void before_fork() {
  for (Slot& slot : slots) slot.lock.mark_for_fork();
}

bool is_writing_here() { return of_thread & kWriting; }

void record_nothing_in_child() {
  if (!the_switch.load()) return;
  for (Slot& slot : slots)
    if (slot.lock.held_elsewhere()) new (&slot.lock) SpinLock;
  leave_definitions_in_child();
  leave_chunks_in_child();
}

void begin_anew_in_child(const Plan& plan) {
  Switch* const one = the_switch.load();
  if (!one) return;
  for (Slot& slot : slots) {
    new (&slot.lock) SpinLock;
    slot.chunk = nullptr;
  }
  forget_definitions_in_child();
  forget_chunks_in_child(plan);
  threads_known = 0;
  start_ticks(plan.clock_is_processors);
  of_thread = 0;
  one->on = true;
}

}  // namespace cistern::recording
