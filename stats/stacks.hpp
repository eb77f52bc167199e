// Every stack of a snapshot, in the order in which names are looked for: what a report shows first comes first.
#pragma once
#include "stats/snapshot.hpp"

namespace cistern {

// `visit(site, frames, is_named)`: `site` is 0 where there is none; of long lists only the first items get names, the
// others keep module and offset.
template <class Visit>
void for_each_stack(Snapshot& snapshot, Visit visit) {
  constexpr std::size_t kHostSitesNamed = 200, kCopySitesNamed = 50;
  for (LeakFigures& leak : snapshot.leaks) visit(leak.site, leak.frames, true);
  for (GrowingSite& site : snapshot.growing) visit(site.site, site.frames, true);
  for (UsingSite& site : snapshot.at_peak) visit(site.site, site.frames, true);
  for (UsingSite& site : snapshot.in_loops) visit(site.site, site.frames, true);
  for (ObjectSite& site : snapshot.object_sites) visit(site.site, site.frames, true);
  for (WaitSite& wait : snapshot.waits) visit(wait.site, wait.frames, true);
  for (TransferFigures& transfer : snapshot.transfers) visit(transfer.site, transfer.frames, true);
  std::size_t copies = 0, host = 0;
  for (CopySite& site : snapshot.copy_sites)
    visit(site.site, site.frames, copies++ < kCopySitesNamed || site.worth_a_line());
  for (LeakFigures& site : snapshot.host_sites) visit(site.site, site.frames, host++ < kHostSitesNamed);
}

}  // namespace cistern
