// See core.hpp: what a report shows, gathered from all layers. Apart from what every process runs, which lies together.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "shim/core/core.hpp"
#include "shim/core/environment.hpp"
#include "shim/core/host_sites.hpp"
#include "stats/runtime_frames.hpp"
#include "stats/sites.hpp"
#include "stats/symbols.hpp"

#ifndef CISTERN_VERSION
#error "CISTERN_VERSION comes from the build"
#endif

namespace cistern {
namespace {

constexpr unsigned kSymbolBudgetMs = 3000;
constexpr std::size_t kCommandBytesMax = 4096;

String command_line() {
  String command;
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return command;
  char buffer[kCommandBytesMax];
  const ssize_t length = ::read(file, buffer, sizeof buffer);
  close(file);
  for (ssize_t i = 0; i < length; ++i) command.push_back(buffer[i] ? buffer[i] : ' ');
  while (!command.empty() && command.back() == ' ') command.pop_back();
  return command;
}

void add_site_figures(Snapshot& snapshot) {
  const SiteStatistics sites = site_statistics();
  snapshot.sites = options().sites == "off" ? String("off") : "gpu:all,host:" + host::sites_mode();
  snapshot.sites_count = sites.sites;
  snapshot.capture_mean_ns = sites.capture_mean_ns;
  if (sites.capture_mean_ns) snapshot.estimated.push_back("self.capture_mean_ns");
  snapshot.dropped_events = sites.dropped;
  snapshot.tables_bytes = internal_mapped_bytes();
}

// Before other kinds' figures, whose making allocates.
void add_host_sites(Snapshot& snapshot) {
  host::LiveSites live = host::live_sites();
  const bool exact = host::sites_mode() == "all";
  snapshot.host_sites = std::move(live.sites);
  if (!exact && !snapshot.host_sites.empty()) snapshot.estimated.push_back("host_sites");
  std::optional<FragmentationFigures> fragments = host::fragmentation(live.requested_ratio);
  if (!fragments) return;
  if (!exact && fragments->requested_bytes) snapshot.estimated.push_back("fragmentation.host.internal");
  snapshot.fragmentation.push_back(std::move(*fragments));
}

void sort_largest_first(Vector<LeakFigures>& leaks) {
  std::sort(leaks.begin(), leaks.end(), [](const LeakFigures& a, const LeakFigures& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.blocks > b.blocks;
  });
}

}  // namespace

Snapshot take_snapshot(const char* moment) {
  host::Uncounted uncounted;
  Snapshot snapshot{};
  snapshot.version = CISTERN_VERSION;
  snapshot.pid = getpid();
  const Ranks ranks = read_ranks(environment_variable);
  snapshot.rank = ranks.rank;
  snapshot.ranks = ranks.ranks;
  snapshot.command = command_line();
  snapshot.wall_s = static_cast<double>(nanoseconds_since_start()) / 1e9;
  snapshot.moment = moment;
  // As a layer we see no malloc: figures that do not exist are left out.
  if (KindFigures figures = host::figures(); figures.allocations || figures.frees || figures.live_blocks) {
    snapshot.kinds.push_back(std::move(figures));
    snapshot.estimated.push_back("kinds.host.peak_bytes");
    add_host_sites(snapshot);
  }
  if (opencl::used()) {
    snapshot.kinds.push_back(opencl::figures());
    snapshot.fragmentation.push_back(opencl::fragmentation());
    opencl::add_leaks(snapshot.leaks);
    opencl::add_objects(snapshot.objects);
  }
  if (cuda::used()) {
    cuda::add_kinds(snapshot.kinds, snapshot.fragmentation);
    cuda::add_leaks(snapshot.leaks);
    cuda::add_transfers(snapshot);
    cuda::add_devices(snapshot);
  }
  sort_largest_first(snapshot.leaks);
  sort_largest_first(snapshot.host_sites);
  symbolise(snapshot, kSymbolBudgetMs);
  for (LeakFigures& leak : snapshot.leaks) cut_runtime_frames(leak.frames);
  for (LeakFigures& site : snapshot.host_sites) cut_runtime_frames(site.frames);
  for (TransferFigures& transfer : snapshot.transfers) cut_runtime_frames(transfer.frames);
  add_site_figures(snapshot);
  return snapshot;
}

void report_end(const char* moment) { write_report(take_snapshot(moment)); }

}  // namespace cistern
