// See transfers.hpp.
#include "stats/transfers.hpp"

#include <algorithm>
#include <bit>

namespace cistern {
namespace {

constexpr double kNanosecond = 1e-9;

// A percentile of fewer copies says nothing.
constexpr std::uint64_t kCopiesMin = 20;
// Below it the call takes more time than the bytes do.
constexpr std::uint64_t kLargeBytes = 1 << 20;

// The eighths of a power of two that `value` has beyond it: its binary logarithm, in steps.
unsigned steps_of(double value, unsigned steps) {
  const auto whole = static_cast<std::uint64_t>(value);
  if (whole == 0) return 0;
  const unsigned log2 = static_cast<unsigned>(std::bit_width(whole)) - 1;
  double rest = value / static_cast<double>(std::uint64_t{1} << log2);
  unsigned part = 0;
  for (unsigned half = steps / 2; half; half /= 2) {
    rest *= rest;
    if (rest >= 2) rest /= 2, part += half;
  }
  return log2 * steps + part;
}

constexpr double kEighthRoots[] = {1.0443, 1.1388, 1.2419, 1.3543, 1.4768, 1.6105, 1.7563, 1.9152};  // 2^((n + 1/2)/8)

}  // namespace

void Transfers::Rates::add(std::uint64_t bytes, std::uint64_t nanoseconds) {
  const double rate =
      static_cast<double>(bytes) / (static_cast<double>(std::max<std::uint64_t>(nanoseconds, 1)) * kNanosecond);
  ++counts_[std::min(steps_of(rate, kSteps), kRates - 1)];
  ++count_;
  if (bytes >= kLargeBytes) best_ = std::max(best_, rate);
}

std::optional<double> Transfers::Rates::percentile(double part) const {
  if (count_ < kCopiesMin) return std::nullopt;
  const auto wanted = static_cast<std::uint64_t>(part * static_cast<double>(count_ - 1));
  std::uint64_t seen = 0;
  unsigned at = 0;
  while (at < kRates - 1 && (seen += counts_[at]) <= wanted) ++at;
  return static_cast<double>(std::uint64_t{1} << (at / kSteps)) * kEighthRoots[at % kSteps];
}

void Transfers::add(const TransferKey& key, std::uint64_t count, std::uint64_t bytes) {
  Locked hold(lock_);
  Totals& totals = table_[key];
  totals.count += count;
  totals.bytes += bytes;
}

void Transfers::add_time(const TransferKey& key, std::uint64_t count, std::uint64_t bytes, std::uint64_t nanoseconds) {
  Locked hold(lock_);
  Totals& totals = table_[key];
  totals.timed_bytes += bytes;
  totals.timed_ns += nanoseconds;
  if (count == 1) rates_of(key).add(bytes, nanoseconds);
}

void Transfers::add_failed(const TransferKey& key, std::uint64_t count) {
  Locked hold(lock_);
  table_[key].failed += count;
}

void Transfers::add_unaligned(const TransferKey& key) {
  Locked hold(lock_);
  ++table_[key].unaligned;
}

void Transfers::add_return(const TransferKey& key, bool unchanged) {
  Locked hold(lock_);
  Totals& totals = table_[key];
  ++totals.returns;
  totals.unchanged += unchanged;
}

void Transfers::last_was(const TransferKey& key, const void* stream) {
  Locked hold(lock_);
  last = {&table_[key], stream, nullptr};
}

// The table may be another kind's: its lock is not to be had here.
void Transfers::waits(const void* for_what) {
  if (last.copy && (!for_what || for_what == last.stream || for_what == last.mark))
    std::atomic_ref(last.copy->waited_for).fetch_add(1, std::memory_order_relaxed);
  last = {};
}

double Transfers::best_rate(CopyDirection direction) const {
  double best = 0;
  for (const auto& of_memory : rates_[static_cast<unsigned>(direction)])
    for (const Rates& rates : of_memory) best = std::max(best, rates.best());
  return best;
}

// In a forked child: its one thread is this one.
void Transfers::clear() {
  Locked hold(lock_);
  last = {};
  table_.clear();
  for (auto& of_direction : rates_)
    for (auto& of_memory : of_direction)
      for (Rates& rates : of_memory) rates = {};
}

void Transfers::add_to(Snapshot& snapshot, const char* kind) {
  Vector<TransferFigures> rows;
  Vector<double> best;
  Locked hold(lock_);
  for (auto& [key, totals] : table_) {
    const char* const direction = direction_name(key.direction);
    auto row = std::find_if(rows.begin(), rows.end(), [&, &wanted = key](const TransferFigures& one) {
      return one.direction == direction && one.pageable == wanted.pageable && one.asynchronous == wanted.asynchronous;
    });
    if (row == rows.end()) {
      TransferFigures figures{};
      figures.kind = kind;
      figures.direction = direction;
      figures.pageable = key.pageable;
      figures.asynchronous = key.asynchronous;
      figures.rate_p50 = rates_of(key).percentile(0.5);
      figures.rate_p95 = rates_of(key).percentile(0.95);
      best.push_back(best_rate(key.direction));
      rows.push_back(std::move(figures));
      row = rows.end() - 1;
    }
    row->count += totals.count;
    row->failed += totals.failed;
    row->bytes += totals.bytes;
    row->timed_bytes += totals.timed_bytes;
    if (totals.timed_ns || !key.asynchronous)
      row->seconds = row->seconds.value_or(0) + static_cast<double>(totals.timed_ns) * kNanosecond;
    if (key.site && totals.bytes >= row->site_bytes) {
      row->site_bytes = totals.bytes;
      row->api = key.api;
      row->site = key.site;
    }
    const std::uint64_t waited_for = std::atomic_ref(totals.waited_for).load(std::memory_order_relaxed);
    CopySite site{
        kind,         direction, key.pageable,     key.asynchronous, totals.count,   totals.bytes,     totals.failed,
        std::nullopt, 0,         totals.unaligned, waited_for,       totals.returns, totals.unchanged, key.api,
        key.site,     {}};
    if (!key.asynchronous) {
      site.seconds = static_cast<double>(totals.timed_ns) * kNanosecond;
      if (const double best = best_rate(key.direction); best > 0)
        site.lost_seconds = std::max(0.0, *site.seconds - static_cast<double>(totals.timed_bytes) / best);
    }
    snapshot.copy_sites.push_back(std::move(site));
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].timed_bytes && rows[i].seconds.value_or(0) > 0 && best[i] > 0)
      rows[i].efficiency = std::min(1.0, static_cast<double>(rows[i].timed_bytes) / *rows[i].seconds / best[i]);
  std::sort(rows.begin(), rows.end(),
            [](const TransferFigures& a, const TransferFigures& b) { return a.bytes > b.bytes; });
  std::sort(snapshot.copy_sites.begin(), snapshot.copy_sites.end(),
            [](const CopySite& a, const CopySite& b) { return a.bytes > b.bytes; });
  snapshot.transfers.insert(snapshot.transfers.end(), rows.begin(), rows.end());
}

}  // namespace cistern
