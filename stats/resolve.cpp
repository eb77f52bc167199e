// See resolve.hpp.
#include "stats/resolve.hpp"

#include "stats/runtime_frames.hpp"
#include "stats/symbols.hpp"

namespace cistern {
namespace {

void find_frames(Vector<LeakFigures>& leaks) {
  for (LeakFigures& leak : leaks) {
    if (!leak.site) continue;
    leak.frames = site_frames(leak.site);
    SiteOwner owner = site_owner(leak.site);
    leak.owner = std::move(owner.module);
    leak.owned_by_program = owner.is_program;
  }
}

void cut_frames(Vector<FrameFigures>& frames) {
  cut_runtime_frames(frames);
  cut_call_wrappers(frames);
}

}  // namespace

void resolve(Snapshot& snapshot, unsigned budget_ms) {
  find_frames(snapshot.leaks);
  find_frames(snapshot.host_sites);
  for (TransferFigures& transfer : snapshot.transfers)
    if (transfer.site) transfer.frames = site_frames(transfer.site);
  for (CopySite& site : snapshot.copy_sites)
    if (site.site) site.frames = site_frames(site.site);
  for (Vector<UsingSite>* sites : {&snapshot.at_peak, &snapshot.in_loops})
    for (UsingSite& site : *sites) site.frames = site_frames(site.site);
  for (ObjectSite& site : snapshot.object_sites) site.frames = site_frames(site.site);
  for (WaitSite& site : snapshot.waits)
    if (site.site) site.frames = site_frames(site.site);
  symbolise(snapshot, budget_ms);
  for (LeakFigures& leak : snapshot.leaks) cut_frames(leak.frames);
  for (LeakFigures& site : snapshot.host_sites) cut_frames(site.frames);
  for (Vector<UsingSite>* sites : {&snapshot.at_peak, &snapshot.in_loops})
    for (UsingSite& site : *sites) cut_frames(site.frames);
  for (ObjectSite& site : snapshot.object_sites) cut_frames(site.frames);
  for (WaitSite& site : snapshot.waits) cut_frames(site.frames);
  for (TransferFigures& transfer : snapshot.transfers) cut_frames(transfer.frames);
  for (CopySite& site : snapshot.copy_sites) cut_frames(site.frames);
}

Vector<FrameFigures> resolved_frames(SiteId site, unsigned budget_ms) {
  Vector<LeakFigures> one(1);
  one[0].frames = site_frames(site);
  symbolise(one, budget_ms);
  cut_frames(one[0].frames);
  return std::move(one[0].frames);
}

}  // namespace cistern
