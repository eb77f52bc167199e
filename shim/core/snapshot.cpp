// See core.hpp: the snapshot that a report shows, gathered from all layers, and the report itself. It stands apart from
// core.cpp, whose code every process runs.
//
//   report_end -> judge_at_end (judging/judging.hpp): the live memory that the program can still reach
//              -> take_snapshot -> collect: figures and rows of each kind (Kind::add_to), with sites as numbers
//                               -> resolve (stats/resolve.hpp): frames, names and lines of the sites
//                               -> suppress_and_merge: rules of suppressions, then rows that look alike become one
//              -> keep_gate (gate.hpp): the exit code
//              -> write_report (process/output.hpp) -> render_text or render_json (stats/report/report.hpp)
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "pool/base/clock.hpp"
#include "pool/base/process_start.hpp"
#include "shim/core/core.hpp"
#include "shim/core/gate.hpp"
#include "shim/core/suppressions_file.hpp"
#include "shim/cuda/library/plugins.hpp"
#include "shim/judging/judging.hpp"
#include "shim/library/pools.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/log.hpp"
#include "shim/process/output.hpp"
#include "shim/process/process.hpp"
#include "shim/process/standings.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/counters.hpp"
#include "stats/format.hpp"
#include "stats/frameworks.hpp"
#include "stats/listed_rows.hpp"
#include "stats/report/report.hpp"
#include "stats/resolve.hpp"
#include "stats/sink.hpp"
#include "stats/sites.hpp"
#include "stats/suppressions.hpp"

#ifndef CISTERN_VERSION
#error "CISTERN_VERSION comes from the build"
#endif

namespace cistern {
namespace {

constexpr unsigned kSymbolBudgetMs = 3000;
constexpr unsigned kSymbolBudgetBeforeDeathMs = 700;  // a signal leaves the process 2 s
constexpr std::size_t kCommandBytesMax = 4096, kPathBytesShown = 200;

String command_line() {
  String command;
  read_file("/proc/self/cmdline", kCommandBytesMax, command);
  if (command.empty())  // no /proc
    for (char** argument = start_arguments(); argument && *argument && command.size() < kCommandBytesMax; ++argument)
      command.append(*argument, strlen(*argument) + 1);
  std::replace(command.begin(), command.end(), '\0', ' ');
  while (!command.empty() && command.back() == ' ') command.pop_back();
  return command;
}

void mark_what_was_before(Snapshot& snapshot) {
  for (LeakFigures& leak : snapshot.leaks)
    leak.before_wake = !leak.site && (snapshot.sites_are_asleep || leak.last_s <= *snapshot.sites_woke_at_s);
}

void add_site_figures(Snapshot& snapshot) {
  const SiteStatistics sites = site_statistics();
  snapshot.sites = options().sites == "off" ? String("off") : "gpu:all,host:" + snapshot.host_sites_mode;
  const SitesSleep sleep = sites_sleep();
  snapshot.sites_are_asleep = sleep.asleep;
  if (sleep.woke_at_ns) snapshot.sites_woke_at_s = static_cast<double>(*sleep.woke_at_ns) / 1e9;
  if (snapshot.have_sites_slept()) mark_what_was_before(snapshot);
  snapshot.sites_count = sites.sites;
  snapshot.capture_mean_ns = sites.capture_mean_ns;
  if (sites.capture_mean_ns) snapshot.estimated.push_back("self.capture_mean_ns");
  snapshot.dropped_events = sites.dropped;
  snapshot.pythons = pythons_seen();
  snapshot.tables_bytes = internal_mapped_bytes();
}

// Memory that was not judged while the program ran is shown as live only.
void add_judging(Snapshot& snapshot) {
  const Judgement& done = judgement();
  if (done.is_known || done.why_not)
    snapshot.judging = {done.why_not,
                        done.unseen_threads,
                        done.unreadable_bytes,
                        done.bytes_read,
                        done.memory_bytes,
                        static_cast<double>(done.took_ns) / 1e9,
                        static_cast<double>(done.stopped_ns) / 1e9};
  if (snapshot.ended_by_itself() || done.is_known) return;
  for (Vector<LeakFigures>* rows : {&snapshot.leaks, &snapshot.host_sites})
    for (LeakFigures& leak : *rows)
      if (leak.leak_class != LeakClass::went_with_context) leak.leak_class = LeakClass::live;
}

// A site may have more memory than before because other sites have less. Then it does not count as growing.
void drop_what_only_moved(Snapshot& snapshot) {
  for (SiteTrend& site : snapshot.site_trends) {
    if (site.trend.kind != TrendKind::growing) continue;
    const auto of = std::find_if(snapshot.kinds.begin(), snapshot.kinds.end(),
                                 [&](const KindFigures& kind) { return kind.name == site.kind; });
    if (!site.is_host && of == snapshot.kinds.end()) continue;
    if (!rose_beside(site.is_host ? snapshot.host_over_time : of->over_time, site.trend))
      site.trend = {TrendKind::constant};
  }
}

// Gives rows of leaks the trend of their site. The sites that grow fastest also have a list of their own, since their
// memory may have been freed at the end. The list is long, because its first sites may all be suppressed. For a gate it
// has all sites: the gate asks for one that grew by so many bytes, however fast.
void add_trends(Snapshot& snapshot) {
  const std::size_t kept_max = options().fail_on.bytes_min[FailOn::growing] ? SIZE_MAX : 50;
  drop_what_only_moved(snapshot);
  Map<SiteId, Vector<const SiteTrend*>> by_site;  // one or two kinds for each
  for (const SiteTrend& trend : snapshot.site_trends) by_site[trend.site].push_back(&trend);
  const auto of_site = [&](LeakFigures& leak) {
    const auto found = by_site.find(leak.site);
    if (found == by_site.end()) return;
    for (const SiteTrend* const trend : found->second)
      if (trend->kind == leak.kind) leak.trend = trend->trend;
  };
  for (LeakFigures& leak : snapshot.leaks) of_site(leak);
  for (LeakFigures& leak : snapshot.host_sites) of_site(leak);
  std::erase_if(snapshot.site_trends, [](const SiteTrend& site) { return site.trend.kind != TrendKind::growing; });
  std::sort(snapshot.site_trends.begin(), snapshot.site_trends.end(), [](const SiteTrend& a, const SiteTrend& b) {
    if (a.trend.bytes_per_s != b.trend.bytes_per_s) return a.trend.bytes_per_s > b.trend.bytes_per_s;
    return a.site < b.site;
  });
  for (SiteTrend& site : snapshot.site_trends) {
    const auto of_kind = std::count_if(snapshot.growing.begin(), snapshot.growing.end(),
                                       [&](const GrowingSite& other) { return other.kind == site.kind; });
    if (static_cast<std::size_t>(of_kind) < kept_max) snapshot.growing.push_back({std::move(site), {}});
  }
  snapshot.site_trends = {};
}

// A user who gives the judgement more time gives it to names too: a busy machine takes long for either.
unsigned symbol_budget_ms(std::string_view moment) {
  if (is_signal(moment)) return kSymbolBudgetBeforeDeathMs;
  const std::uint64_t judging_ms = std::min<std::uint64_t>(options().judging_limit() / 1'000'000, 60'000);
  return std::max(kSymbolBudgetMs, static_cast<unsigned>(judging_ms));
}

String about_suppressions(std::string_view what) {
  StringSink line;
  line.print("CISTERN_SUPPRESSIONS: {}: {}", printable(options().suppressions, kPathBytesShown), what);
  return line.text();
}

// A file with faults may suppress less than the user meant, or more, so each fault has a line. Rows become one only
// after each is known to be suppressed or not.
void suppress_and_merge(Snapshot& snapshot) {
  Suppressions suppressions;
  const auto complain = [&snapshot](std::string_view what) {
    String line = about_suppressions(what);
    warn_line(line);
    if (snapshot.suppressions_fault.empty()) snapshot.suppressions_fault = std::move(line);
  };
  const SuppressionsFile file = suppressions_file();
  if (!file.fault.empty()) complain(file.fault);
  suppressions.read(file.text);
  for (const unsigned line : suppressions.lines_that_are_no_rule())
    complain("line " + decimal(line, 0) + " is not of the form leak:PATTERN");
  for (const String& pattern : suppressions.patterns_of_anything())
    warn_line(about_suppressions("leak:" + printable(pattern, kPathBytesShown) + " suppresses everything"));
  suppressions.mark(snapshot);
  cut_call_wrappers(snapshot);
  merge_alike(snapshot);
  count_suppressed(snapshot);
}

// This is quick, and other threads go on meanwhile: no symbols are looked for, no lock of the dynamic linker is taken.
Snapshot collect(const char* moment) {
  Snapshot snapshot{};
  snapshot.version = CISTERN_VERSION;
  snapshot.pid = getpid();
  const Ranks ranks = read_ranks(environment_variable);
  snapshot.rank = ranks.rank;
  snapshot.ranks = ranks.ranks;
  snapshot.command = command_line();
  const std::uint64_t wall_ns = nanoseconds_since_start();
  snapshot.start_unix_s = static_cast<double>(clock_ns(CLOCK_REALTIME) - wall_ns) / 1e9;
  snapshot.wall_s = static_cast<double>(wall_ns) / 1e9;
  snapshot.moment = moment;
  for (const Kind* kind : kinds()) kind->add_to(snapshot);
  library::add_pools(snapshot);
  add_judging(snapshot);
  add_trends(snapshot);
  sort_worst_first(snapshot.leaks);
  sort_worst_first(snapshot.host_sites);
  add_site_figures(snapshot);
  return snapshot;
}

// The outline has what is known immediately: live memory that is not judged, and frames without names. A launcher may
// kill the process before the report is there.
void write_outline(const char* moment) {
  Uncounted uncounted;
  Snapshot snapshot = collect(moment);
  if (options().judging_limit())
    snapshot.judging = {"the process was killed before the judgement ended", 0, 0, 0, 0, 0};
  resolve_without_symbols(snapshot, options().frames == "python");
  merge_alike(snapshot);
  write_outline_of_report(std::move(snapshot));
}

}  // namespace

Snapshot take_snapshot(const char* moment) {
  Uncounted uncounted;
  Snapshot snapshot = collect(moment);
  if (snapshot.used_gpu_memory()) snapshot.frameworks = loaded_frameworks(environment_variable);
  for (FrameworkFigures& framework : snapshot.frameworks)
    framework.is_switched |= framework.name == std::string_view("PyTorch") && library::torch_allocates_here.load();
  resolve(snapshot, symbol_budget_ms(moment), options().frames == "python");
  suppress_and_merge(snapshot);
  return snapshot;
}

void report_now() {
  const Uncounted uncounted;
  JudgementHeld held;
  held.judge_now(stack_in_use());
  write_report(take_snapshot("request"));
}

void render_now(Judged judged, Sink& sink) {
  const Uncounted uncounted;
  JudgementHeld held;
  judged == Judged::yes ? held.judge_now(stack_in_use()) : held.judge_nothing();
  render_json(take_snapshot("request"), sink);
}

// A process may be judged only for the gate, by its host memory. If it passes, it has no report.
int report_end(ProcessEnd end) {
  const bool is_asked_for = gpu_used() || options().report_requested;
  if (is_asked_for && is_signal(end.moment)) write_outline(end.moment);
  if (end.stack_in_use) judge_at_end(end.stack_in_use);
  const JudgementHeld held;
  Snapshot snapshot = take_snapshot(end.moment);
  const int status = keep_gate(snapshot, end.status);
  say_gate(snapshot);
  if (is_asked_for || status != end.status.value_or(0)) write_report(std::move(snapshot));
  return status;
}

}  // namespace cistern
