// See core.hpp: what a report shows, gathered from all layers. Apart from what every process runs, which lies together.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "shim/core/core.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/output.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/counters.hpp"
#include "stats/resolve.hpp"
#include "stats/sites.hpp"

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
  snapshot.sites = options().sites == "off" ? String("off") : "gpu:all,host:" + snapshot.host_sites_mode;
  snapshot.sites_count = sites.sites;
  snapshot.capture_mean_ns = sites.capture_mean_ns;
  if (sites.capture_mean_ns) snapshot.estimated.push_back("self.capture_mean_ns");
  snapshot.dropped_events = sites.dropped;
  snapshot.tables_bytes = internal_mapped_bytes();
}

void sort_largest_first(Vector<LeakFigures>& leaks) {
  std::sort(leaks.begin(), leaks.end(), [](const LeakFigures& a, const LeakFigures& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.blocks > b.blocks;
  });
}

// Quick, and beside threads at work: no symbols are looked for, no lock of the dynamic linker is taken.
Snapshot collect(const char* moment) {
  Snapshot snapshot{};
  snapshot.version = CISTERN_VERSION;
  snapshot.pid = getpid();
  const Ranks ranks = read_ranks(environment_variable);
  snapshot.rank = ranks.rank;
  snapshot.ranks = ranks.ranks;
  snapshot.command = command_line();
  snapshot.wall_s = static_cast<double>(nanoseconds_since_start()) / 1e9;
  snapshot.moment = moment;
  for (const Kind* kind : kinds()) kind->add_to(snapshot);
  sort_largest_first(snapshot.leaks);
  sort_largest_first(snapshot.host_sites);
  add_site_figures(snapshot);
  return snapshot;
}

}  // namespace

Snapshot take_snapshot(const char* moment) {
  Uncounted uncounted;
  Snapshot snapshot = collect(moment);
  resolve(snapshot, kSymbolBudgetMs);
  return snapshot;
}

void report_end(const char* moment) { write_report(take_snapshot(moment)); }

}  // namespace cistern
