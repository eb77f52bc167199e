// See calibration.hpp.
#include "pool/staging/calibration.hpp"

#include <algorithm>

namespace cistern::staging {
namespace {

constexpr double kTolerance = 1.05, kHopeless = 2, kHopelessAtOnce = 8, kFirstCopyNs = 20e6, kLossMax = 0.01,
                 kStrange = 2;
constexpr unsigned kChosenMax = 4 * kTrialsMax;  // trials that do not count come to nothing at last
constexpr unsigned kCopiesUntilUsual = 8, kStrangeCopies = 16;
constexpr std::uint64_t kFirstBytesPartMost = 4;  // the first bytes are at most a quarter of their copy

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

void Calibration::Best::add(const Took& took, double mebibytes) {
  const double of_end = static_cast<double>(took.end_to_end) / mebibytes;
  const double of_blocked = static_cast<double>(took.blocked) / mebibytes;
  this->mebibytes = mebibytes;
  end_to_end = trials ? std::min(end_to_end, of_end) : of_end;
  blocked = trials ? std::min(blocked, of_blocked) : of_blocked;
  ++trials;
}

bool Calibration::wins(const Best& staged, const Best& native) {
  const bool better = staged.end_to_end < native.end_to_end || staged.blocked < native.blocked;
  return better && staged.end_to_end <= native.end_to_end * kTolerance && staged.blocked <= native.blocked * kTolerance;
}

// By so many times, in both times.
bool Calibration::is_slower(const Best& way, const Best& than, double times) {
  return way.trials && than.trials && way.end_to_end > than.end_to_end * times && way.blocked > than.blocked * times;
}

// The driver's first copy may also make what the driver needs for copies: alone it decides only by more time than that
// takes.
bool Calibration::is_native_hopeless(const SizeBucket& bucket) {
  const Best &native = bucket.of[0], &staged = bucket.of[1];
  if (native.trials > 1) return is_slower(native, staged, kHopeless);
  return is_slower(native, staged, kHopelessAtOnce) &&
         (native.blocked - staged.blocked) * native.mebibytes > kFirstCopyNs;
}

void Calibration::decide(SizeBucket& bucket) {
  const Best &native = bucket.of[0], &staged = bucket.of[1];
  if (is_slower(staged, native, kHopeless)) {
    bucket.won = Way::native;
  } else if (is_native_hopeless(bucket)) {
    bucket.won = Way::staged;
  } else if (native.trials >= kTrialsToDecide && staged.trials >= kTrialsToDecide) {
    bucket.won = wins(staged, native) ? Way::staged : Way::native;
  } else if (staged.chosen >= kTrialsMax || native.chosen >= kChosenMax) {
    const bool known = native.trials && staged.trials;
    bucket.won = known && wins(staged, native) ? Way::staged : Way::native;
  }
}

Calibration::Choice Calibration::choose(std::uint64_t bytes, std::uint64_t process_ns) {
  const unsigned number = range_of(bytes);
  if (!number) return {Way::native, false};
  Locked hold(lock_);
  SizeBucket& bucket = buckets_[number];
  bucket.seen = true;
  if (bucket.won) return {*bucket.won, false};
  Best &native = bucket.of[0], &staged = bucket.of[1];
  const bool too_dear = staged.chosen && lost_ns_ > kLossMax * static_cast<double>(process_ns);
  Best& next = native.trials <= staged.trials || too_dear ? native : staged;
  ++next.chosen;
  const bool is_native = &next == &native;
  const bool may_be_slow =
      !native.trials || native.blocked * mebibytes(kFirstBytes) > static_cast<double>(kFirstBytesSlowNs);
  const Choice choice{is_native ? Way::native : Way::staged, true,
                      is_native && may_be_slow && bytes >= kFirstBytesPartMost * kFirstBytes};
  decide(bucket);
  return choice;
}

bool Calibration::has_decided(std::uint64_t bytes) {
  const unsigned number = range_of(bytes);
  if (!number) return true;
  Locked hold(lock_);
  return buckets_[number].won.has_value();
}

void Calibration::tried(Way way, std::uint64_t bytes, const Took& took) {
  Locked hold(lock_);
  SizeBucket& bucket = buckets_[range_of(bytes)];
  const Best& native = bucket.of[0];
  if (way == Way::staged && native.trials)
    lost_ns_ += std::max(0.0, static_cast<double>(took.blocked) - native.blocked * mebibytes(took.bytes));
  bucket.of[way == Way::staged].add(took, mebibytes(took.bytes));
  if (!bucket.won) decide(bucket);
}

void Calibration::copied(Way way, std::uint64_t bytes, std::uint64_t blocked_ns) {
  const unsigned number = range_of(bytes);
  if (!number) return;
  Locked hold(lock_);
  SizeBucket& bucket = buckets_[number];
  if (!bucket.won || *bucket.won != way) return;
  const double blocked = static_cast<double>(blocked_ns) / mebibytes(bytes);
  if (bucket.copies < kCopiesUntilUsual) {
    bucket.usual_blocked += blocked / kCopiesUntilUsual;
    ++bucket.copies;
    return;
  }
  const bool usual = blocked < bucket.usual_blocked * kStrange && blocked * kStrange > bucket.usual_blocked;
  bucket.strange = usual ? 0 : bucket.strange + 1;
  if (bucket.strange < kStrangeCopies) return;
  bucket = {};
  bucket.seen = true;
}

std::optional<Calibration::RangeFigures> Calibration::figures(unsigned number) {
  Locked hold(lock_);
  const SizeBucket& bucket = buckets_[number];
  if (!number || !bucket.seen) return std::nullopt;
  const Best &native = bucket.of[0], &staged = bucket.of[1];
  return RangeFigures{range_bytes_min(number), bucket.won,     native.trials,     staged.trials,
                      native.end_to_end,       native.blocked, staged.end_to_end, staged.blocked};
}

}  // namespace cistern::staging
