// See resolve.hpp.
#include "stats/resolve.hpp"

#include <algorithm>

#include "stats/runtime_frames.hpp"
#include "stats/stacks.hpp"
#include "stats/symbols.hpp"

namespace cistern {
namespace {

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

void find_frames(Snapshot& snapshot) {
  for_each_stack(snapshot, [](SiteId site, Vector<FrameFigures>& frames, bool) {
    if (site) frames = site_frames(site);
  });
  find_owners(snapshot.leaks);
  find_owners(snapshot.host_sites);
}

void leave_out_frames(Snapshot& snapshot, bool fold_native) {
  for_each_stack(snapshot, [fold_native](SiteId, Vector<FrameFigures>& frames, bool) {
    cut_runtime_frames(frames);
    if (fold_native) fold_native_frames(frames);
  });
}

}  // namespace

void resolve(Snapshot& snapshot, unsigned budget_ms, bool fold_native) {
  find_frames(snapshot);
  symbolise(snapshot, budget_ms);
  leave_out_frames(snapshot, fold_native);
}

void resolve_without_symbols(Snapshot& snapshot, bool fold_native) {
  find_frames(snapshot);
  leave_out_frames(snapshot, fold_native);
}

void cut_call_wrappers(Snapshot& snapshot) {
  for_each_stack(snapshot, [](SiteId, Vector<FrameFigures>& frames, bool) { cut_call_wrappers(frames); });
}

void resolve(Vector<LeakFigures>& rows, unsigned budget_ms, bool fold_native) {
  for (LeakFigures& row : rows) row.frames = site_frames(row.site);
  symbolise(rows, budget_ms);
  for (LeakFigures& row : rows) {
    cut_runtime_frames(row.frames);
    cut_call_wrappers(row.frames);
    if (fold_native) fold_native_frames(row.frames);
  }
}

Vector<FrameFigures> resolved_frames(SiteId site, unsigned budget_ms) {
  Vector<LeakFigures> one(1);
  one[0].frames = site_frames(site);
  symbolise(one, budget_ms);
  cut_runtime_frames(one[0].frames);
  cut_call_wrappers(one[0].frames);
  if (std::any_of(one[0].frames.begin(), one[0].frames.end(), is_python))
    std::erase_if(one[0].frames, [](const FrameFigures& frame) { return !frame.python; });
  return std::move(one[0].frames);
}

}  // namespace cistern
