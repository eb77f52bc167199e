// See turns.hpp.
#include "pool/staging/turns.hpp"

#include <time.h>

#include <algorithm>

#include "pool/base/system_call.hpp"

namespace cistern::staging {
namespace {

std::uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// A launch takes a few microseconds.
void pause(unsigned looks) {
  constexpr unsigned kSpins = 100, kShortSleeps = 1000;
  if (looks < kSpins) return;
  const timespec time{0, looks < kShortSleeps ? 10'000 : 1'000'000};
  system_call(SYS_nanosleep, reinterpret_cast<std::uintptr_t>(&time));
}

}  // namespace

Turns::LongTurn* Turns::in_the_way_of(const Place& place) {
  const auto found = std::find_if(under_way_.begin(), under_way_.end(), [&](const LongTurn& turn) {
    return !turn.given_up && turn.place.ordered_with(place);
  });
  return found == under_way_.end() ? nullptr : &*found;
}

// Who waits is not under way. Once it is counted again it looks again: a long turn begins before it counts.
void Turns::wait(Calls& calls, const Place& place) {
  const std::uint64_t begin_ns = now_ns();
  for (unsigned looks = 0;; ++looks) {
    {
      Locked hold(lock_);
      const bool patient = now_ns() - begin_ns < kPatienceNs;
      LongTurn* other = in_the_way_of(place);
      for (; other && !patient; other = in_the_way_of(place)) other->given_up = true;
      if (!other) return;
    }
    calls.fetch_sub(1);
    pause(looks);
    calls.fetch_add(1);
  }
}

// It is enough to see each number of calls at none once: who comes later sees the long turn.
bool Turns::drained(const Place& place) {
  const std::uint64_t begin_ns = now_ns();
  unsigned looks = 0;
  const auto drains = [&](const Calls& calls) {
    for (; calls.load() > 0; pause(++looks))
      if (now_ns() - begin_ns > kDrainNs) return false;
    return true;
  };
  if (place.joins_all) return std::all_of(calls_.begin(), calls_.end(), drains);
  return drains(calls_on(place.stream)) && drains(calls_[0]);
}

std::uint64_t Turns::begin_long(const Place& place) {
  const std::uint64_t begin_ns = now_ns();
  std::uint64_t number = 0;
  for (unsigned looks = 0; !number; ++looks) {
    {
      Locked hold(lock_);
      if (!in_the_way_of(place)) {
        number = ++last_number_;
        under_way_.push_back({place, number, false});
        long_turns_.fetch_add(1);
      }
    }
    if (!number && now_ns() - begin_ns > kPatienceNs) return 0;
    if (!number) pause(looks);
  }
  if (drained(place)) return number;
  end_long(number);
  return 0;
}

void Turns::end_long(std::uint64_t number) {
  Locked hold(lock_);
  if (std::erase_if(under_way_, [&](const LongTurn& turn) { return turn.number == number; })) long_turns_.fetch_sub(1);
}

// The thread that forks may have a turn itself: in a callback, or in a handler of signals.
void Turns::forget_in_child() {
  for (Calls& calls : calls_) calls = 0;
  under_way_.clear();
  long_turns_ = 0;
}

bool Turn::lengthen(const Place& place) {
  if (number_) return true;
  calls_.fetch_sub(1);
  number_ = turns_.begin_long(place);
  if (number_) return true;
  calls_.fetch_add(1);
  turns_.wait(calls_, place);
  return false;
}

}  // namespace cistern::staging
