// See comparison.hpp.
#include "stats/formats/comparison.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "stats/formats/groups.hpp"
#include "stats/formats/rows.hpp"

namespace cistern::formats {
namespace {

void add_once(std::vector<std::string>& all, const std::string& text) {
  if (!text.empty() && std::ranges::find(all, text) == all.end()) all.push_back(text);
}

Side side_of(const Run& run, const std::string& name) {
  Side side;
  side.name = name, side.processes = run.reports.size();
  if (!run.reports.empty()) side.command = run.reports.front().cistern.command;
  for (const Report& report : run.reports) {
    side.wall_s = std::max(side.wall_s, report.cistern.wall_s);
    side.gpu_memory_used |= report.cistern.gpu_memory_used;
    add_once(side.site_modes, report.sites.mode);
    for (const std::string& figure : report.estimated) add_once(side.estimated, figure);
    if (report.recorded)
      for (const auto& [what, sentence] : report.recorded->missing) add_once(side.missing, sentence);
  }
  return side;
}

// Adds the runs one after another to one of the two sides.
class Builder {
 public:
  explicit Builder(Comparison& all) : all_(all) {}

  void add(const Run& run, KindFigures ComparedKind::*kind_side, SiteFigures ComparedSite::*site_side) {
    const auto first_stack = static_cast<StackId>(all_.stacks.size());
    add_stacks(run);
    const auto site = [&](const auto& row) -> SiteFigures& {
      const auto [at, is_new] = sites_.try_emplace(site_name(run, row.kind, row.frames), all_.sites.size());
      if (is_new) all_.sites.push_back({row.kind, row.api, first_stack + row.frames, {}, {}});
      return all_.sites[at->second].*site_side;
    };
    for (const Report& report : run.reports) {
      for (const auto& [name, kind] : report.kinds) add_kind(kind_named(name).*kind_side, kind);
      for_each_live_row(report, [&](const LiveRow& row) { add_live(site(row), row); });
      for (const UseRow& row : report.at_peak) {
        SiteFigures& figures = site(row);
        figures.peak_blocks += row.peak_blocks, figures.peak_bytes += row.peak_bytes;
      }
    }
  }

 private:
  static void add_kind(KindFigures& sum, const Kind& kind) {
    sum.live_blocks += kind.live_blocks, sum.live_bytes += kind.live_bytes;
    sum.peak_bytes = std::max(sum.peak_bytes, kind.peak_bytes);
  }
  static void add_live(SiteFigures& sum, const LiveRow& row) {
    sum.blocks += row.blocks, sum.bytes += row.bytes;
    if (standing_of(row) != Standing::lost) return;
    sum.lost_blocks += row.blocks, sum.lost_bytes += row.bytes;
  }
  ComparedKind& kind_named(const std::string& name) {
    const auto known = std::ranges::find(all_.kinds, name, &ComparedKind::kind);
    return known != all_.kinds.end() ? *known : all_.kinds.emplace_back(ComparedKind{name, {}, {}});
  }
  void add_stacks(const Run& run) {
    const auto first_frame = static_cast<FrameId>(all_.frames.size());
    all_.frames.insert(all_.frames.end(), run.frames.begin(), run.frames.end());
    for (Stack stack : run.stacks) {
      for (FrameId& frame : stack) frame += first_frame;
      all_.stacks.push_back(std::move(stack));
    }
  }

  Comparison& all_;
  std::unordered_map<std::string, std::size_t> sites_;  // by their names
};

Count difference(Count one, Count other) { return one > other ? one - other : other - one; }

auto rank(const ComparedSite& site) {
  const SiteFigures &was = site.before, &is = site.after;
  const Count changed = std::max({difference(was.bytes, is.bytes), difference(was.lost_bytes, is.lost_bytes),
                                  difference(was.peak_bytes, is.peak_bytes)});
  return std::tuple(site.kind != "host", changed, std::max(was.bytes, is.bytes));
}

void add(Growth& sum, Count before, Count after) {
  sum.before_bytes += before, sum.after_bytes += after;
  if (after > before) ++sum.grown_sites, sum.grown_bytes += after - before;
  if (after < before) ++sum.shrunk_sites, sum.shrunk_bytes += before - after;
}

Growths growths(const std::vector<ComparedSite>& sites) {
  Growths sums;
  for (const ComparedSite& site : sites) {
    const bool is_host = site.kind == "host";
    add(is_host ? sums.host_live : sums.gpu_live, site.before.bytes, site.after.bytes);
    add(is_host ? sums.host_lost : sums.gpu_lost, site.before.lost_bytes, site.after.lost_bytes);
  }
  return sums;
}

}  // namespace

Comparison compared(const Run& before, const std::string& name_before, const Run& after,
                    const std::string& name_after) {
  Comparison all;
  all.before = side_of(before, name_before), all.after = side_of(after, name_after);
  Builder builder(all);
  builder.add(after, &ComparedKind::after, &ComparedSite::after);  // first: its stacks are shown
  builder.add(before, &ComparedKind::before, &ComparedSite::before);
  std::ranges::sort(all.kinds, {}, &ComparedKind::kind);
  std::ranges::stable_sort(all.sites, std::greater(), rank);
  all.growth = growths(all.sites);
  return all;
}

}  // namespace cistern::formats
