// See turns.hpp.
#include "pool/staging/turns.hpp"

#include <linux/futex.h>
#include <time.h>

#include <algorithm>
#include <climits>

#include "pool/base/clock.hpp"
#include "pool/base/system_call.hpp"

namespace cistern::staging {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

// A launch takes a few microseconds.
void pause(unsigned looks) {
  constexpr unsigned kSpins = 100;
  constexpr timespec kTime{0, 10'000};
  if (looks >= kSpins) system_call(SYS_nanosleep, reinterpret_cast<std::uintptr_t>(&kTime));
}

void futex(const std::atomic<unsigned>& word, int operation, unsigned value, const timespec* at_most) {
  system_call(SYS_futex, reinterpret_cast<std::uintptr_t>(&word), static_cast<std::uintptr_t>(operation), value,
              reinterpret_cast<std::uintptr_t>(at_most));
}

}  // namespace

void Turns::note_thread() {
  if (shared_.load(std::memory_order_relaxed)) return;
  const void *const self = __builtin_thread_pointer(), *first = nullptr;
  if (!first_thread_.compare_exchange_strong(first, self) && first != self) shared_.store(true);
}

void Turns::Slot::note_use(const void* of_context) {
  const void* const self = __builtin_thread_pointer();
  if (const void* const last = thread.load(std::memory_order_relaxed); last != self) {
    if (last) used_by_other_ns.store(used_ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
    thread.store(self, std::memory_order_relaxed);
  }
  context.store(of_context, std::memory_order_relaxed);
  used_ns.store(coarse_monotonic_ns(), std::memory_order_relaxed);
}

std::uint64_t Turns::Slot::used_by_others_ns() const {
  const bool own = thread.load(std::memory_order_relaxed) == __builtin_thread_pointer();
  return (own ? used_by_other_ns : used_ns).load(std::memory_order_relaxed);
}

template <class Look>
bool Turns::each_slot(const StreamKey& key, Look look) {
  if (key.joins_all) return std::all_of(slots_.begin(), slots_.end(), look);
  return look(slot_of(key.context, key.stream)) && (!key.blocks || look(slot_of(key.context, nullptr)));
}

Turns::LongTurn* Turns::in_the_way_of(const StreamKey& key) {
  const auto found = std::find_if(under_way_.begin(), under_way_.end(),
                                  [&](const LongTurn& turn) { return !turn.given_up && turn.key.ordered_with(key); });
  return found == under_way_.end() ? nullptr : &*found;
}

// A waiting thread does not count as a call, so that a long turn need not wait for it. After its sleep it counts again
// and then looks again, because a long turn begins first and then looks for calls. It counts as waiting until it has
// seen no long turn: until then no further one begins.
void Turns::wait(Slot& slot, const StreamKey& key) {
  const std::uint64_t begin_ns = monotonic_ns();
  slot.waiting.fetch_add(1);
  while (true) {
    const unsigned ended = ended_.load();
    const std::uint64_t now_ns = monotonic_ns();
    std::uint64_t waited_ns = 0;  // without progress
    {
      Locked hold(lock_);
      LongTurn* other = nullptr;
      while ((other = in_the_way_of(key))) {
        const std::uint64_t since_ns = std::max(begin_ns, other->progress_ns->load(std::memory_order_relaxed));
        waited_ns = now_ns > since_ns ? now_ns - since_ns : 0;
        if (waited_ns < patience_ns_) break;
        other->given_up = true;
        troubled_.store(true);
      }
      if (!other) break;
    }
    slot.calls.fetch_sub(1);
    const std::uint64_t left_ns = patience_ns_ - waited_ns;
    const timespec at_most{static_cast<time_t>(left_ns / kSecond), static_cast<long>(left_ns % kSecond)};
    futex(ended_, FUTEX_WAIT_PRIVATE, ended, &at_most);
    slot.calls.fetch_add(1);
  }
  slot.waiting.fetch_sub(1);
}

bool Turns::in_use(const StreamKey& key) {
  const std::uint64_t now = coarse_monotonic_ns();
  return !each_slot(key, [&](const Slot& slot) {
    if (slot.waiting.load()) return false;
    if (slot.context.load(std::memory_order_relaxed) != key.context) return true;
    const std::uint64_t used = slot.used_by_others_ns();
    return !used || now - used >= kUnusedNs;
  });
}

// Each slot has to have no calls once, not at the same time: a call that comes later sees the long turn.
bool Turns::drained(const StreamKey& key) {
  const std::uint64_t begin_ns = monotonic_ns();
  unsigned looks = 0;
  return each_slot(key, [&](const Slot& slot) {
    for (; slot.calls.load() > 0; pause(++looks))
      if (monotonic_ns() - begin_ns > kDrainNs) return false;
    return true;
  });
}

std::uint64_t Turns::begin_long(const StreamKey& key, std::atomic<std::uint64_t>& progress_ns) {
  if (!alone() && (troubled_.load(std::memory_order_relaxed) || in_use(key))) return 0;
  std::uint64_t number = 0;
  {
    Locked hold(lock_);
    if (in_the_way_of(key)) return 0;
    number = ++last_number_;
    progress_ns.store(monotonic_ns(), std::memory_order_relaxed);
    under_way_.push_back({key, number, &progress_ns, false});
    long_turns_.fetch_add(1);
  }
  if (drained(key)) return number;
  end_long(number);
  return 0;
}

void Turns::end_long(std::uint64_t number) {
  {
    Locked hold(lock_);
    if (!std::erase_if(under_way_, [&](const LongTurn& turn) { return turn.number == number; })) return;
    long_turns_.fetch_sub(1);
  }
  ended_.fetch_add(1);
  if (!alone()) futex(ended_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
}

// The thread that forks may have a turn itself: in a callback, or in a handler of signals.
void Turns::forget_in_child() {
  for (Slot& slot : slots_) {
    slot.calls = slot.waiting = 0;
    slot.thread = nullptr;
    slot.used_by_other_ns = 0;
  }
  under_way_.clear();
  long_turns_ = 0;
  first_thread_ = nullptr;
  shared_ = false;
}

bool Turn::lengthen(const StreamKey& key) {
  if (number_) return true;
  slot_.calls.fetch_sub(1);
  number_ = turns_.begin_long(key, progress_ns_);
  if (number_) return true;
  take([&] { return key; });
  return false;
}

void Turn::progressed() { progress_ns_.store(monotonic_ns(), std::memory_order_relaxed); }

void Turn::shorten(const StreamKey& key) {
  if (!number_) return;
  turns_.end_long(number_);
  number_ = 0;
  take([&] { return key; });
}

}  // namespace cistern::staging
