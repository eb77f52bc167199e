// See transfers.hpp.
#include "stats/transfers.hpp"

#include <algorithm>
#include <bit>

namespace cistern {
namespace {

constexpr double kNanosecond = 1e-9;

// What costs more for each copy than for its bytes, by any driver and link.
constexpr std::uint64_t kTinyBytesMax = 16 << 10, kTinyCopiesMin = 1000;

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

const char* direction_name(CopyDirection direction) {
  constexpr const char* kNames[] = {"host to device", "device to host", "device to device", "host to host", "unknown"};
  return kNames[static_cast<int>(direction)];
}

void Transfers::Rates::add(std::uint64_t bytes, std::uint64_t nanoseconds) {
  const double rate =
      static_cast<double>(bytes) / (static_cast<double>(std::max<std::uint64_t>(nanoseconds, 1)) * kNanosecond);
  ++counts_[std::min(steps_of(rate, kSteps), kRates - 1)];
  ++count_;
}

std::optional<double> Transfers::Rates::percentile(double part) const {
  if (!count_) return std::nullopt;
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

void Transfers::clear() {
  Locked hold(lock_);
  table_.clear();
  for (auto& of_direction : rates_)
    for (auto& of_memory : of_direction)
      for (Rates& rates : of_memory) rates = {};
}

void Transfers::add_to(Snapshot& snapshot, const char* kind) {
  Vector<TransferFigures> rows;
  Locked hold(lock_);
  for (const auto& [key, totals] : table_) {
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
    if (totals.count < kTinyCopiesMin || totals.bytes / totals.count > kTinyBytesMax) continue;
    TinyCopies tiny{kind, direction, totals.count, totals.bytes, std::nullopt, key.api, key.site, {}};
    if (!key.asynchronous) tiny.seconds = static_cast<double>(totals.timed_ns) * kNanosecond;
    snapshot.tiny_copies.push_back(std::move(tiny));
  }
  std::sort(rows.begin(), rows.end(),
            [](const TransferFigures& a, const TransferFigures& b) { return a.bytes > b.bytes; });
  std::sort(snapshot.tiny_copies.begin(), snapshot.tiny_copies.end(),
            [](const TinyCopies& a, const TinyCopies& b) { return a.count > b.count; });
  snapshot.transfers.insert(snapshot.transfers.end(), rows.begin(), rows.end());
}

}  // namespace cistern
