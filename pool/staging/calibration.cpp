// See calibration.hpp.
#include "pool/staging/calibration.hpp"

#include <algorithm>

namespace cistern::staging {
namespace {

constexpr double kTolerance = 1.05, kHopeless = 2, kLossMax = 0.01, kStrange = 2;
constexpr unsigned kChosenMax = 4 * kTrialsMax;  // trials that do not count come to nothing at last
constexpr unsigned kCopiesUntilUsual = 8, kStrangeCopies = 16;

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

void Calibration::Best::add(const Took& took, double mebibytes) {
  const double of_end = static_cast<double>(took.end_to_end) / mebibytes;
  const double of_blocked = static_cast<double>(took.blocked) / mebibytes;
  end_to_end = trials ? std::min(end_to_end, of_end) : of_end;
  blocked = trials ? std::min(blocked, of_blocked) : of_blocked;
  ++trials;
}

bool Calibration::wins(const Best& staged, const Best& native) {
  const bool better = staged.end_to_end < native.end_to_end || staged.blocked < native.blocked;
  return better && staged.end_to_end <= native.end_to_end * kTolerance && staged.blocked <= native.blocked * kTolerance;
}

bool Calibration::hopeless(const Best& staged, const Best& native) {
  return staged.trials && native.trials && staged.end_to_end > native.end_to_end * kHopeless &&
         staged.blocked > native.blocked * kHopeless;
}

void Calibration::decide(Range& range) {
  const Best &native = range.of[0], &staged = range.of[1];
  if (hopeless(staged, native)) {
    range.won = Way::native;
  } else if (native.trials >= kTrialsToDecide && staged.trials >= kTrialsToDecide) {
    range.won = wins(staged, native) ? Way::staged : Way::native;
  } else if (staged.chosen >= kTrialsMax || native.chosen >= kChosenMax) {
    const bool known = native.trials && staged.trials;
    range.won = known && wins(staged, native) ? Way::staged : Way::native;
  }
}

Calibration::Choice Calibration::choose(std::uint64_t bytes, std::uint64_t process_ns) {
  const unsigned number = range_of(bytes);
  if (!number) return {Way::native, false};
  Locked hold(lock_);
  Range& range = ranges_[number];
  range.seen = true;
  if (range.won) return {*range.won, false};
  Best &native = range.of[0], &staged = range.of[1];
  const bool too_dear = staged.chosen && lost_ns_ > kLossMax * static_cast<double>(process_ns);
  Best& next = native.trials <= staged.trials || too_dear ? native : staged;
  ++next.chosen;
  const Choice choice{&next == &staged ? Way::staged : Way::native, true};
  decide(range);
  return choice;
}

void Calibration::tried(Way way, std::uint64_t bytes, const Took& took) {
  Locked hold(lock_);
  Range& range = ranges_[range_of(bytes)];
  const Best& native = range.of[0];
  if (way == Way::staged && native.trials)
    lost_ns_ += std::max(0.0, static_cast<double>(took.blocked) - native.blocked * mebibytes(bytes));
  range.of[way == Way::staged].add(took, mebibytes(bytes));
  if (!range.won) decide(range);
}

void Calibration::copied(Way way, std::uint64_t bytes, std::uint64_t blocked_ns) {
  const unsigned number = range_of(bytes);
  if (!number) return;
  Locked hold(lock_);
  Range& range = ranges_[number];
  if (!range.won || *range.won != way) return;
  const double blocked = static_cast<double>(blocked_ns) / mebibytes(bytes);
  if (range.copies < kCopiesUntilUsual) {
    range.usual_blocked += blocked / kCopiesUntilUsual;
    ++range.copies;
    return;
  }
  const bool usual = blocked < range.usual_blocked * kStrange && blocked * kStrange > range.usual_blocked;
  range.strange = usual ? 0 : range.strange + 1;
  if (range.strange < kStrangeCopies) return;
  range = {};
  range.seen = true;
}

std::optional<Calibration::RangeFigures> Calibration::figures(unsigned number) {
  Locked hold(lock_);
  const Range& range = ranges_[number];
  if (!number || !range.seen) return std::nullopt;
  const Best &native = range.of[0], &staged = range.of[1];
  return RangeFigures{range_bytes_min(number), range.won,      native.trials,     staged.trials,
                      native.end_to_end,       native.blocked, staged.end_to_end, staged.blocked};
}

}  // namespace cistern::staging
