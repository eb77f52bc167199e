// See copy_accounts.hpp.
#include "shim/staging/copy_accounts.hpp"

#include <new>

#include "shim/process/process.hpp"
#include "shim/staging/copy_crew.hpp"
#include "stats/transfers.hpp"

namespace cistern {
namespace {

constexpr const char* kNames[] = {
#define UNSTAGED(name, text) text,
#include "shim/staging/unstaged.def"
#undef UNSTAGED
};

constexpr double kNanosecond = 1e-9, kMebibyte = 1 << 20;

// Nanoseconds for a MiB as bytes in a second; of none, nothing.
std::optional<double> rate(double nanoseconds) {
  if (nanoseconds <= 0) return std::nullopt;
  return kMebibyte / (nanoseconds * kNanosecond);
}

const char* name_of(std::optional<staging::Way> won) {
  if (!won) return nullptr;
  return *won == staging::Way::staged ? "staged" : "native";
}

}  // namespace

StagingMode staging_mode() {
  const auto& chosen = options().staging;
  return chosen == "on" ? StagingMode::on : chosen == "auto" ? StagingMode::automatic : StagingMode::off;
}

Unstaged unstaged_of(staging::Rest rest) {
  switch (rest) {
    case staging::Rest::no_chunk:
      return Unstaged::no_chunk;
    case staging::Rest::untouchable:
      return staging::guarded_copies_are_allowed() ? Unstaged::untouchable : Unstaged::filtered;
    case staging::Rest::interrupted:
      return Unstaged::interrupted;
    default:
      return Unstaged::failed;
  }
}

void CopyAccount::add_to(Snapshot& snapshot, const char* kind, int device, bool to_device, SourceKind source) {
  StagingFigures figures{kind,
                         device,
                         direction_name(to_device ? CopyDirection::host_to_device : CopyDirection::device_to_host),
                         name_of(source),
                         staged_copies_.load(),
                         staged_bytes_.load(),
                         passed_on_bytes_.load(),
                         {},
                         {},
                         staging_mode() == StagingMode::on};
  for (int reason = 0; reason < static_cast<int>(Unstaged::count); ++reason)
    if (const std::uint64_t copies = unstaged_[reason].load()) figures.passed_on.push_back({kNames[reason], copies});
  for (unsigned number = 0; number < staging::kRanges; ++number)
    if (const auto range = calibration.figures(number))
      figures.ranges.push_back({range->bytes_min, name_of(range->won), range->native_trials, range->staged_trials,
                                rate(range->native_end_to_end), rate(range->staged_end_to_end),
                                rate(range->native_blocked), rate(range->staged_blocked)});
  if (figures.staged_copies || !figures.passed_on.empty()) snapshot.staging.push_back(std::move(figures));
}

void CopyAccount::forget() {
  staged_copies_ = staged_bytes_ = passed_on_bytes_ = 0;
  for (auto& counted : unstaged_) counted = 0;
}

// Not while another thread forks: it has the locks of those that there are.
CopyAccount& CopyAccounts::of(int device, bool to_device, SourceKind source) {
  auto& slot = accounts_[device >= 0 && device < kDevices ? device : 0][to_device][static_cast<int>(source)];
  CopyAccount* known = slot.load(std::memory_order_acquire);
  if (known) return *known;
  Locked hold(lock_);
  known = slot.load(std::memory_order_relaxed);
  if (known) return *known;
  auto* const made = new (internal_allocate(sizeof(CopyAccount))) CopyAccount;
  slot.store(made, std::memory_order_release);
  return *made;
}

void CopyAccounts::add_to(Snapshot& snapshot, const char* kind) {
  for_each([&](int device, bool to_device, SourceKind source, CopyAccount& account) {
    account.add_to(snapshot, kind, device, to_device, source);
  });
  if (const std::uint64_t busy_ns = copy_crew_busy_ns())
    snapshot.staging_s = static_cast<double>(busy_ns) * kNanosecond;
}

void CopyAccounts::before_fork() {
  lock_.lock_for_fork();
  for_each([](int, bool, SourceKind, CopyAccount& account) { account.calibration.before_fork(); });
}
void CopyAccounts::after_fork() {
  for_each([](int, bool, SourceKind, CopyAccount& account) { account.calibration.after_fork(); });
  lock_.unlock_after_fork();
}
void CopyAccounts::forget_in_child() {
  for_each([](int, bool, SourceKind, CopyAccount& account) { account.forget(); });
}

}  // namespace cistern
