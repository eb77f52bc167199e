// Call sites of host blocks: which blocks get one (CISTERN_SITES, CISTERN_HOST_SAMPLE), and those alive by site.
#pragma once
#include "shim/process/kind.hpp"
#include "stats/sites.hpp"
#include "stats/snapshot.hpp"

namespace cistern::host {

// Once, early, outside of malloc.
void start_sites();

// Of the calling code, for a line about its misuse; 0 where not every block has a site.
SiteId site_of_misuse();

// A request that no memory was given for. `bytes`: SIZE_MAX: more than can be asked for.
void record_failed(std::size_t bytes);

// "512KiB", "all", "all-since-wake", "asleep" or "off".
String sites_mode();

// Live blocks with a site, grouped, worst first; sampled ones stand for the others: then the figures are estimates.
struct LiveSites {
  Vector<LeakFigures> sites;
  Standings by_standing{};  // of all live blocks, exact
  // Of all live bytes in pages, the part that the program asked for; absent without a sample.
  std::optional<double> requested_ratio;
};
LiveSites live_sites();

// Those that have a site.
void visit_live(VisitLive visit, void* context);

}  // namespace cistern::host
