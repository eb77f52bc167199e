// See resolve.hpp.
#include "stats/resolve.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "stats/format.hpp"
#include "stats/runtime_frames.hpp"
#include "stats/stacks.hpp"
#include "stats/symbols.hpp"

namespace cistern {
namespace {

struct HashOfText {
  std::size_t operator()(const String& text) const { return std::hash<std::string_view>()(text); }
};

void find_owners(Vector<LeakFigures>& leaks) {
  for (LeakFigures& leak : leaks) {
    if (!leak.site) continue;
    SiteOwner owner = site_owner(leak.site);
    leak.owner = std::move(owner.name);
    leak.owned_by_program = owner.is_program;
  }
}

bool is_python(const FrameFigures& frame) { return frame.python; }

void fold_native_frames(Vector<FrameFigures>& frames) {
  const bool any = std::any_of(frames.begin(), frames.end(), is_python);
  for (FrameFigures& frame : frames) frame.folded = any && !frame.python;
}

void cut_frames(Vector<FrameFigures>& frames) {
  cut_runtime_frames(frames);
  cut_call_wrappers(frames);
}

// What a reader sees of a stack.
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

void add(LeakFigures& row, const LeakFigures& more) {
  row.blocks += more.blocks, row.bytes += more.bytes;
  row.created += more.created, row.retained += more.retained, row.released += more.released;
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

// What keeps rows apart whose stacks look alike.
String origin(const LeakFigures& leak) {
  return leak.kind + "|" + String(leak.leak_class) + "|" + leak.object + "|" + String(leak.api ? leak.api : "") +
         (leak.kept_parent_bytes ? "|kept" : "");
}
String origin(const UsingSite& site) { return site.kind; }
String origin(const GrowingSite& site) { return site.kind; }

// A compiler that repeats a call makes several call sites of one line, and so does native code below a line of Python:
// to the reader they are one.
template <class Row>
void merge_equal(Vector<Row>& rows) {
  Map<String, std::size_t, HashOfText> places;
  Vector<Row> merged;
  for (Row& row : rows) {
    if (row.frames.empty()) {
      merged.push_back(std::move(row));
      continue;
    }
    const auto [place, is_new] = places.try_emplace(shown(row.frames) + origin(row), merged.size());
    if (is_new)
      merged.push_back(std::move(row));
    else
      add(merged[place->second], row);
  }
  rows = std::move(merged);
}

// Of what is lost, that stands last to which a driver's memory still leads.
int place_of(const LeakFigures& leak) {
  if (const int rank = leak.rank()) return rank + 1;
  return leak.leak_class == name_of(Standing::held_by_driver) ? 1 : 0;
}

}  // namespace

void sort_worst_first(Vector<LeakFigures>& leaks) {
  std::sort(leaks.begin(), leaks.end(), [](const LeakFigures& a, const LeakFigures& b) {
    if (place_of(a) != place_of(b)) return place_of(a) < place_of(b);
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.blocks > b.blocks;
  });
}

void resolve(Snapshot& snapshot, unsigned budget_ms, bool fold_native) {
  for_each_stack(snapshot, [](SiteId site, Vector<FrameFigures>& frames, bool) {
    if (site) frames = site_frames(site);
  });
  find_owners(snapshot.leaks);
  find_owners(snapshot.host_sites);
  symbolise(snapshot, budget_ms);
  for_each_stack(snapshot, [fold_native](SiteId, Vector<FrameFigures>& frames, bool) {
    cut_frames(frames);
    if (fold_native) fold_native_frames(frames);
  });
  for (Vector<LeakFigures>* const leaks : {&snapshot.leaks, &snapshot.host_sites}) {
    merge_equal(*leaks);
    sort_worst_first(*leaks);
  }
  merge_equal(snapshot.at_peak);
  merge_equal(snapshot.in_loops);
  merge_equal(snapshot.growing);
}

Vector<FrameFigures> resolved_frames(SiteId site, unsigned budget_ms) {
  Vector<LeakFigures> one(1);
  one[0].frames = site_frames(site);
  symbolise(one, budget_ms);
  cut_frames(one[0].frames);
  if (std::any_of(one[0].frames.begin(), one[0].frames.end(), is_python))
    std::erase_if(one[0].frames, [](const FrameFigures& frame) { return !frame.python; });
  return std::move(one[0].frames);
}

}  // namespace cistern
