// See listed_rows.hpp.
#include "stats/listed_rows.hpp"

#include <algorithm>
#include <cmath>

#include "stats/format.hpp"

namespace cistern {
namespace {

// The part of a stack that a reader sees.
String shown(const Vector<FrameFigures>& frames) {
  String text;
  for (const FrameFigures& frame : frames) {
    if (frame.folded) continue;
    const bool has_line = !frame.file.empty() && frame.line;
    text += frame.function + "|" + (has_line ? frame.file : frame.module) + "|";
    text +=
        decimal(has_line ? frame.line : static_cast<double>(frame.module.empty() ? frame.address : frame.offset), 0);
    text += "\n";
  }
  return text;
}

void add(UsingSite& row, const UsingSite& more) {
  row.allocations += more.allocations, row.allocated_bytes += more.allocated_bytes;
  row.temporary += more.temporary;
  row.peak_blocks += more.peak_blocks, row.peak_bytes += more.peak_bytes;
}

void add(References& references, const References& more) {
  references.created += more.created, references.retained += more.retained, references.released += more.released;
}

void add(Trend& trend, const Trend& more) {
  if (more.kind != TrendKind::growing) return;
  if (trend.kind != TrendKind::growing) {
    trend = more;
    return;
  }
  trend.bytes_per_s += more.bytes_per_s;
  trend.bytes += more.bytes;
  trend.since_s = std::min(trend.since_s, more.since_s);
}

// The levels stay those of the first, which is the one that grows fastest.
void add(GrowingSite& row, const GrowingSite& more) { add(row.trend, more.trend); }

String kept_apart_by(const UsingSite& site) { return site.kind; }
String kept_apart_by(const GrowingSite& site) { return site.kind + (site.suppressed ? "|suppressed" : ""); }

template <class Row>
void merge_equal(Vector<Row>& rows) {
  std::size_t without_stack = 0;
  const auto key = [&](const Row& row) {
    return row.frames.empty() ? decimal(static_cast<double>(without_stack++), 0)
                              : shown(row.frames) + kept_apart_by(row);
  };
  rows = merged_by(std::move(rows), key, [](Row& row, const Row& more) { add(row, more); });
}

// Among lost rows, those that a driver's memory still leads to come last.
int place_of(const LeakFigures& leak) {
  if (const int rank = leak.rank()) return rank + 1;
  return leak.leak_class == LeakClass::held_by_driver ? 1 : 0;
}

}  // namespace

void add(LeakFigures& row, const LeakFigures& more) {
  row.blocks += more.blocks, row.bytes += more.bytes;
  if (row.references && more.references) add(*row.references, *more.references);
  add(row.trend, more.trend);
  row.first_s = std::min(row.first_s, more.first_s);
  row.last_s = std::max(row.last_s, more.last_s);
  if (more.kept_parent_bytes) row.kept_parent_bytes = row.kept_parent_bytes.value_or(0) + *more.kept_parent_bytes;
  if (row.block_bytes && more.block_bytes)
    row.block_bytes = {std::min(row.block_bytes->least, more.block_bytes->least),
                       std::max(row.block_bytes->most, more.block_bytes->most)};
  if (row.bytes_error || more.bytes_error) {
    const auto one = static_cast<double>(row.bytes_error.value_or(0));
    const auto other = static_cast<double>(more.bytes_error.value_or(0));
    row.bytes_error = static_cast<std::uint64_t>(std::sqrt(one * one + other * other));
  }
}

String kept_apart_by(const LeakFigures& leak) {
  return leak.kind + "|" + String(name_of(leak.leak_class)) + "|" + leak.object + "|" +
         String(leak.api ? leak.api : "") + (leak.kept_parent_bytes ? "|kept" : "") +
         (leak.inherited ? "|inherited" : "") +
         (leak.suppressed ? "|rule " + decimal(static_cast<double>(leak.rule), 0) : String());
}

bool is_worse(const LeakFigures& one, const LeakFigures& other) {
  if (place_of(one) != place_of(other)) return place_of(one) < place_of(other);
  return one.bytes != other.bytes ? one.bytes > other.bytes : one.blocks > other.blocks;
}

void sort_worst_first(Vector<LeakFigures>& leaks) { std::sort(leaks.begin(), leaks.end(), is_worse); }

void merge_alike(Snapshot& snapshot) {
  for (Vector<LeakFigures>* const leaks : {&snapshot.leaks, &snapshot.host_sites}) {
    merge_equal(*leaks);
    sort_worst_first(*leaks);
  }
  merge_equal(snapshot.at_peak);
  merge_equal(snapshot.in_loops);
  merge_equal(snapshot.growing);
}

}  // namespace cistern
