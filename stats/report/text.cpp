// The text report: the verdict, then the figures that explain it, on about a screen. JSON has all figures. render_text,
// at the end, calls one function for each section, in their order.
#include <algorithm>
#include <cmath>

#include "pool/base/path.hpp"
#include "stats/format.hpp"
#include "stats/listed_rows.hpp"
#include "stats/report/report.hpp"
#include "stats/report/text_parts.hpp"
#include "stats/report/text_tables.hpp"

namespace cistern {
namespace {

constexpr std::size_t kSitesShown = 10;
constexpr std::size_t kSitesInFull = 3;  // with more sites than this, each shows fewer frames
constexpr std::size_t kHostSitesShown = 3, kObjectSitesShown = 3, kGrowingShown = 3, kFramesOfPeaks = 1;
constexpr std::size_t kCommandBytes = 100;

// Blocks, bytes and sites of some leaks.
struct Total {
  std::uint64_t blocks = 0, bytes = 0, sites = 0, without_site = 0;
  std::uint64_t kept_bytes = 0;   // part of `bytes`: parents that the program did release
  std::uint64_t ended_bytes = 0;  // part of `bytes`: its context was destroyed

  void add(const LeakFigures& leak) {
    blocks += leak.blocks;
    bytes += leak.bytes;
    kept_bytes += leak.kept_parent_bytes.value_or(0);
    if (leak.leak_class == LeakClass::went_with_context) ended_bytes += leak.bytes;
    leak.frames.empty() ? without_site += leak.blocks : ++sites;
  }
  // "3 blocks, 48.0 MiB never freed at 2 sites"
  String sentence(const char* state) const {
    String text = counted(blocks, "block") + ", " + human_bytes(bytes) + state;
    if (sites) text += " at " + counted(sites, "site");
    if (kept_bytes) text += ", " + human_bytes(kept_bytes) + " of it kept alive by sub-buffers";
    if (ended_bytes) text += ", " + human_bytes(ended_bytes) + " of it in destroyed contexts";
    return text;
  }
};

// Without a site, the maker of a block is unknown. It counts as the program's, which must not look clean then.
bool by_library(const LeakFigures& leak) { return !leak.owner.empty() && !leak.owned_by_program; }

void write_header(const Snapshot& snapshot, Sink& sink) {
  sink.print("cistern {}  {}  pid {}", snapshot.version, printable(snapshot.command, kCommandBytes), snapshot.pid);
  if (snapshot.rank) sink.print("  rank {}", *snapshot.rank);
  if (snapshot.rank && snapshot.ranks) sink.print("/{}", *snapshot.ranks);
  sink.print("  wall {}  sites={}", seconds(snapshot.wall_s), snapshot.sites);
  if (snapshot.sites_are_asleep) sink.write(", asleep (CISTERN_WAKE)");
  if (snapshot.sites_woke_at_s) sink.print(" since the wake at {}", seconds(*snapshot.sites_woke_at_s));
  sink.write("\n");
}

// The leaks of one side, the program's or its libraries', by what is worst.
struct Side {
  Total lost, possible, unjudged, reachable;
  Vector<String> owners;

  void add(const LeakFigures& leak) {
    Total& part = is_lost(leak.leak_class)                      ? lost
                  : leak.leak_class == LeakClass::possibly_lost ? possible
                  : leak.leak_class == LeakClass::reachable     ? reachable
                                                                : unjudged;
    part.add(leak);
    if (std::find(owners.begin(), owners.end(), leak.owner) == owners.end()) owners.push_back(leak.owner);
  }
  std::uint64_t blocks() const { return lost.blocks + possible.blocks + unjudged.blocks + reachable.blocks; }
  std::uint64_t without_site() const {
    return lost.without_site + possible.without_site + unjudged.without_site + reachable.without_site;
  }
  // "1 block, 1.0 MiB lost at 1 site; 2 blocks, 2.8 MiB reachable, never freed at 1 site"
  String sentence(bool running) const {
    String text;
    const auto add_part = [&text](const Total& part, const char* state) {
      if (!part.blocks) return;
      if (!text.empty()) text += "; ";
      text += part.sentence(state);
    };
    add_part(lost, " lost");
    add_part(possible, " possibly lost");
    add_part(unjudged, running ? " live" : " never freed");
    add_part(reachable, running ? " reachable" : " reachable, never freed");
    return text;
  }
  String names() const {
    constexpr std::size_t kShown = 3;
    String names;
    for (std::size_t i = 0; i < owners.size() && i < kShown; ++i) {
      if (i) names += ", ";
      names += printable(owners[i], kPathBytesShown);
    }
    return owners.size() > kShown ? names + ", ..." : names;
  }
};

// "unknown to this version: cuFirst, cuSecond, 3 more"
void write_unknown_functions(const UnknownFunctions& unknown, Sink& sink) {
  constexpr std::size_t kShown = 4;
  const std::size_t shown = std::min(unknown.names.size(), kShown);
  if (!shown) return;
  sink.print("         unknown to this version: ");
  for (std::size_t i = 0; i < shown; ++i) sink.print("{}{}", i ? ", " : "", printable(unknown.names[i]));
  if (const std::size_t more = unknown.names.size() - shown)
    sink.print(", {}{} more", unknown.others ? "at least " : "", grouped(more));
  sink.print(": what they do to memory is not seen\n");
}

// The memory that the figures below do not show.
void write_blind_spots(const Snapshot& snapshot, Sink& sink) {
  for (const FrameworkFigures& framework : snapshot.frameworks) {
    if (framework.is_switched) {
      sink.print("         {}'s memory cache is off ({}): each tensor is seen\n", framework.name, framework.how);
      continue;
    }
    sink.print("         {} has a memory cache of its own{}: memory in it counts as live, and tensors are not seen; ",
               framework.name, framework.when);
    sink.print("{} shows each tensor, at the cost of a driver call each\n", framework.how);
  }
  write_unknown_functions(snapshot.unknown_functions, sink);
  if (snapshot.escaped)
    sink.print("         not in this report: the memory of {} that the driver hook did not see\n",
               counted(snapshot.escaped, "CUDA call"));
}

// The cause of the verdict, and its effect.
String occasion(const Snapshot& snapshot) {
  const std::string_view moment = snapshot.moment;
  if (moment == "call") return "requested by the program, which is still running";
  if (moment == "request") return "requested by a signal; the program is still running";
  if (!snapshot.ended_by_itself())
    return "ended by " + String(moment) + (snapshot.leaks.empty() ? "" : ": it might still have freed this memory");
  if (!snapshot.exit_code) return "exit code unchanged";
  const bool is_of_others = !snapshot.gate || snapshot.gate->outcome == Outcome::passed;
  const bool is_undecided = !is_of_others && snapshot.gate->outcome == Outcome::undecided;
  return "exit code " + decimal(*snapshot.exit_code, 0) + " instead of 0, by " +
         (is_of_others   ? "CISTERN_FAIL_CHILDREN"
          : is_undecided ? "CISTERN_UNDECIDED_CODE"
                         : "CISTERN_FAIL_ON");
}

// "; GROWING by 58.0 MiB at 1 site (device:0)": freed at the end or not.
String growth_of(const Snapshot& snapshot) {
  std::uint64_t sites = 0;
  double bytes = 0;
  Vector<String> kinds;
  String names;
  for (const GrowingSite& site : snapshot.growing) {
    if (site.suppressed) continue;
    ++sites, bytes += site.trend.bytes;
    if (std::find(kinds.begin(), kinds.end(), site.kind) != kinds.end()) continue;
    names += (kinds.empty() ? "" : ", ") + site.kind;
    kinds.push_back(site.kind);
  }
  if (!sites) return {};
  return "; GROWING by " + human_bytes(static_cast<std::uint64_t>(bytes)) + " at " + counted(sites, "site") + " (" +
         names + ")";
}

// The reasons why the gate could not decide.
String doubts(const Snapshot& snapshot) {
  if (!snapshot.gate) return {};
  const GateFigures& gate = *snapshot.gate;
  if (gate.outcome == Outcome::undecided) return "could not decide (" + gate.reason + "): ";
  if (gate.outcome == Outcome::misconfigured) return "misconfigured (" + printable(gate.reason) + "): ";
  return {};
}

// "42 blocks, 32.0 MiB (+- 2.0 MiB) at 3 sites"; empty: none. Samples are drawn apart from each other: the squares of
// their errors add up.
String suppressed_of(const Vector<LeakFigures>& leaks) {
  std::uint64_t sites = 0, blocks = 0, bytes = 0;
  double variance = 0;
  for (const LeakFigures& leak : leaks) {
    if (!leak.suppressed) continue;
    ++sites, blocks += leak.blocks, bytes += leak.bytes;
    const double error = static_cast<double>(leak.bytes_error.value_or(0));
    variance += error * error;
  }
  if (!sites) return {};
  String text = counted(blocks, "block") + ", " + human_bytes(bytes);
  if (variance > 0) text += " (+- " + human_bytes(static_cast<std::uint64_t>(std::sqrt(variance) + 0.5)) + ")";
  return text + " at " + counted(sites, "site");
}

// Known and accepted leaks: they stand beside the others, not among them.
void write_suppressions(const Snapshot& snapshot, Sink& sink) {
  constexpr std::size_t kUnusedShown = 10;
  String rules, unused;
  std::size_t unused_count = 0;
  for (const SuppressionFigures& rule : snapshot.suppressions) {
    if (!rule.sites && ++unused_count > kUnusedShown) continue;
    String& list = rule.sites ? rules : unused;
    if (!list.empty()) list += ", ";
    list += printable(rule.rule, kPathBytesShown);
    if (rule.built_in) list += " (built in)";
  }
  const String gpu = suppressed_of(snapshot.leaks), host = suppressed_of(snapshot.host_sites);
  if (!gpu.empty()) sink.print("SUPPRESSED  GPU memory: {}\n", gpu);
  if (!host.empty()) sink.print("SUPPRESSED  host memory: {}\n", host);
  if (!rules.empty()) sink.print("      by {}\n", rules);
  if (unused_count > kUnusedShown)
    unused += " and " + counted(static_cast<std::uint64_t>(unused_count - kUnusedShown), "other");
  if (!unused.empty()) sink.print("SUPPRESSIONS UNUSED  {}\n", unused);
}

// "14.0 KiB in 93 blocks lost, 34.3 MiB in 2,400 blocks reachable"; empty: they were not judged.
String host_standings(const Snapshot& snapshot) {
  constexpr Standing kWorstFirst[] = {Standing::lost,           Standing::indirectly_lost, Standing::possibly_lost,
                                      Standing::held_by_driver, Standing::unclassified,    Standing::reachable};
  String text;
  if (!snapshot.judging || snapshot.judging->why_not) return text;
  for (const Standing standing : kWorstFirst) {
    const BlocksAndBytes& some = snapshot.host_standings[static_cast<std::size_t>(standing)];
    if (!some.blocks) continue;
    if (!text.empty()) text += ", ";
    text +=
        human_bytes(some.bytes) + " in " + counted(some.blocks, "block") + " " + String(text_of(class_of(standing)));
  }
  return text;
}

// Whether there is such memory, of GPU kinds or of the host, with a site or without.
bool has_any(const Snapshot& snapshot, Standing standing) {
  return snapshot.host_standings[static_cast<std::size_t>(standing)].blocks ||
         std::any_of(snapshot.leaks.begin(), snapshot.leaks.end(),
                     [&](const LeakFigures& leak) { return leak.leak_class == class_of(standing); });
}

// The reasons why the classes are not certain.
void write_limits_of_judging(const Snapshot& snapshot, Sink& sink) {
  if (!snapshot.judging) return;
  const JudgingFigures& judging = *snapshot.judging;
  if (judging.why_not) {
    sink.print("         which blocks the program can still reach is not known: {}\n", judging.why_not);
  } else if (judging.unreadable_bytes && has_any(snapshot, Standing::unclassified)) {
    sink.print("         {} of memory could not be read: blocks that nothing else points to are unclassified\n",
               human_bytes(judging.unreadable_bytes));
  } else if (judging.unseen_threads && has_any(snapshot, Standing::possibly_lost)) {
    sink.print("         the registers of {} were not seen: blocks that nothing else points to are possibly lost\n",
               counted(judging.unseen_threads, "other thread"));
  }
}

void write_verdict(const Snapshot& snapshot, Sink& sink) {
  Side program, libraries;
  for (const LeakFigures& leak : snapshot.leaks)
    if (!leak.suppressed) (by_library(leak) ? libraries : program).add(leak);
  const bool running = !snapshot.ended_by_itself(), judged = snapshot.judging && !snapshot.judging->why_not;
  String verdict;
  if (program.blocks()) verdict = program.sentence(running);
  if (libraries.blocks()) {
    if (program.blocks()) verdict += "; ";
    verdict += "by libraries: " + libraries.sentence(running) + " (" + libraries.names() + ")";
    if (!program.blocks()) verdict += "; nothing by the program itself";
  }
  if (verdict.empty()) {
    verdict = !snapshot.used_gpu_memory() ? kNoGpuMemory
              : running                   ? "nothing live on the GPU"
                                          : "nothing leaked on the GPU";
  } else if (judged && !program.lost.blocks && !libraries.lost.blocks && !program.possible.blocks &&
             !libraries.possible.blocks && !program.unjudged.blocks && !libraries.unjudged.blocks) {
    verdict = "nothing lost; " + verdict;
  }
  verdict += growth_of(snapshot);
  sink.print("{}  {}{}      ({})\n", running ? "LIVE   " : "VERDICT", doubts(snapshot), verdict, occasion(snapshot));
  const auto host =
      std::find_if(snapshot.kinds.begin(), snapshot.kinds.end(), [](const KindFigures& kind) { return kind.is_host; });
  const bool host_alive = host != snapshot.kinds.end() && host->live_blocks;
  if (const String standings = host_standings(snapshot); host_alive && !standings.empty()) {
    sink.print("         host memory {}: {}\n", running ? "live" : "live at exit", standings);
  } else if (host_alive) {
    sink.print("         host memory: {} in {} {}: not judged{}\n", human_bytes(host->live_bytes),
               counted(host->live_blocks, "block"), running ? "live" : "live at exit",
               judged && !host->pooled_kind ? ", because another allocator serves it" : "");
  }
  write_limits_of_judging(snapshot, sink);
  if (snapshot.family.judged()) sink.print("         {}\n", sentence_of(snapshot.family));
  if (std::string_view(snapshot.moment) == "_exit") sink.write("         ended by _exit: destructors had not run\n");
  if (const std::uint64_t without_site = program.without_site() + libraries.without_site()) {
    const bool off = snapshot.sites.find("gpu:all") == String::npos;
    sink.print("         {} without a call site{}\n", counted(without_site, "block"),
               off ? ": CISTERN_SITES=gpu records it" : ": the stack could not be read");
  }
  write_blind_spots(snapshot, sink);
}

// The driver calls, for pools: "40 allocs, 25 frees".
String driver_calls(const KindFigures& kind) {
  String text;
  const auto add = [&text](std::uint64_t count, const char* one, const char* many) {
    if (!count) return;
    if (!text.empty()) text += ", ";
    text += grouped(count) + " " + (count == 1 ? one : many);
  };
  add(kind.driver_allocs, "alloc", "allocs");
  add(kind.driver_frees, "free", "frees");
  add(kind.driver_syncs, "sync", "syncs");
  add(kind.driver_queries, "query", "queries");
  return text;
}

String listed(const Vector<UnpooledFigure>& figures) {
  String text;
  for (const UnpooledFigure& figure : figures) {
    if (!text.empty()) text += ", ";
    text += String(figure.reason) + " " + grouped(figure.count);
  }
  return text;
}

void write_kind(const KindFigures& kind, double wall_s, bool peak_is_bound, Sink& sink) {
  const String live = blocks_and_bytes(kind.live_blocks, kind.live_bytes);
  String peak = kind.peak_bytes ? human_bytes(kind.peak_bytes) : String("-");
  if (kind.peak_bytes && peak_is_bound) peak = (kind.pooled_kind ? "at most " : "about ") + peak;
  if (kind.peak_bytes && kind.peak_at_s) peak += " (" + seconds(*kind.peak_at_s) + ")";
  String driver, hits;
  if (kind.pooled_kind) {
    driver = grouped(kind.driver_allocs + kind.driver_frees + kind.driver_syncs + kind.driver_queries);
    hits = hit_rate(kind.pool_hits, kind.allocations);
  }
  sink.print("  {:<10}  {:<22}  {:<22}  {:>11}  {:>12}  {:>6}  {:>6}\n", kind.name, live, peak,
             grouped(kind.allocations), driver, hits, kind.failed ? grouped(kind.failed).c_str() : "-");
  if (const String reasons = listed(kind.unpooled); !reasons.empty())
    sink.print("              unpooled: {}\n", reasons);
  if (kind.kept_in_order || !kind.waited.empty()) {
    const String reasons = listed(kind.waited);
    sink.print("              released while commands used them: {} reusable in queue order{}{}\n",
               grouped(kind.kept_in_order), reasons.empty() ? "" : "; had to wait: ", reasons);
  }
  String pool = kind.pooled_kind ? driver_calls(kind) : String();
  if (!pool.empty()) pool = (kind.is_host ? "calls to the system: " : "driver calls: ") + pool;
  if (!pool.empty() && kind.pooled_blocks) pool += "; ";
  if (kind.pooled_blocks)
    pool += "retained by the pool (not a leak): " + bytes_in_blocks(kind.pooled_blocks, kind.pooled_bytes);
  if (!pool.empty()) sink.print("              {}\n", pool);
  if (const auto& of = kind.graph_memory)
    sink.print("              driver memory for graphs: {} used, peak {}; {} reserved, peak {} (at {})\n",
               human_bytes(of->used_bytes), human_bytes(of->used_peak_bytes), human_bytes(of->reserved_bytes),
               human_bytes(of->reserved_peak_bytes), seconds(of->sampled_at_s));
  if (!kind.allocated_bytes) return;
  sink.print("              allocated in total: {}", human_bytes(*kind.allocated_bytes));
  if (wall_s >= 1 && static_cast<double>(kind.allocations) >= wall_s)
    sink.print(", {} allocs/s", grouped(static_cast<std::uint64_t>(static_cast<double>(kind.allocations) / wall_s)));
  // The last block of a program is freed by the next call too.
  if (kind.temporary.value_or(0) > 1) sink.print(", {} freed right away", grouped(*kind.temporary));
  sink.write("\n");
}

bool is_estimated(const Snapshot& snapshot, const String& path) {
  return std::find(snapshot.estimated.begin(), snapshot.estimated.end(), path) != snapshot.estimated.end();
}

void write_kinds(const Snapshot& snapshot, Sink& sink) {
  if (snapshot.kinds.empty()) return;
  sink.print("{:<12}  {:<22}  {:<22}  {:>11}  {:>12}  {:>6}  {:>6}\n", "KIND",
             snapshot.ended_by_itself() ? "live@exit" : "live", "peak (at t)", "allocs", "driver calls", "hit%",
             "failed");
  for (const KindFigures& kind : snapshot.kinds)
    write_kind(kind, snapshot.wall_s, is_estimated(snapshot, "kinds." + kind.name + ".peak_bytes"), sink);
}

// Reference counts are shown where they explain why a block is alive.
void write_references(const LeakFigures& leak, bool running, Sink& sink) {
  if (!leak.references) return;
  const auto [created, retained, released] = *leak.references;
  const bool over_retained = !running && retained && released >= created;
  if (retained || released)
    sink.print("     created {}, retained {}, released {}{}\n", grouped(created), grouped(retained), grouped(released),
               over_retained ? ": over-retained" : "");
  if (leak.kept_parent_bytes)
    sink.print("     keeps its released parent buffer alive: {}\n", human_bytes(*leak.kept_parent_bytes));
}

// ", requested 1.0 MiB", ", requested 16 B to 4.0 KiB each".
String sizes_of(const LeakFigures& leak) {
  if (!leak.block_bytes) return {};
  const String least = human_bytes(leak.block_bytes->least), most = human_bytes(leak.block_bytes->most);
  if (leak.blocks == 1 && least == human_bytes(leak.bytes)) return {};
  return ", requested " + least + (least == most ? String() : " to " + most) + (leak.blocks == 1 ? "" : " each");
}

// "1.2 MiB/s since 3.00 s"
String growth(const Trend& trend) {
  return human_bytes(static_cast<std::uint64_t>(trend.bytes_per_s + 0.5)) + "/s since " + seconds(trend.since_s);
}

// Beside how much it is: whether it becomes more.
String trend_of(const LeakFigures& leak) {
  String text = name_of(leak.trend.kind);
  if (leak.trend.kind == TrendKind::growing) text += " " + growth(leak.trend);
  return text;
}

// An entry of a list. It stands for rows that look alike in it, since it shows fewer frames than the rows have (the
// snapshot's own rows already differ in some frame: merge_alike).
struct Entry {
  LeakFigures leak;
  std::size_t stacks = 1;
};

void write_leak(const Entry& entry, std::size_t rank, bool running, std::size_t frames_max, Sink& sink) {
  const LeakFigures& leak = entry.leak;
  String bytes = leak.bytes ? human_bytes(leak.bytes) : String();
  if (leak.bytes_error) bytes += " (+- " + human_bytes(*leak.bytes_error) + ")";
  if (leak.bytes) bytes += " in ";
  // "buffer, clCreateBuffer", but not "cudaMalloc block, cudaMalloc".
  const bool named = leak.api && !std::string_view(leak.object).starts_with(leak.api);
  sink.print("{:>2}  {}  {}{}{} ({}{}{})  {}{}  first {}  last {}{}\n", rank, leak.kind, bytes,
             counted(leak.blocks, "block"), sizes_of(leak), leak.object, named ? ", " : "", named ? leak.api : "",
             text_of(leak.leak_class),
             leak.inherited     ? ", from before the fork"
             : leak.before_wake ? ", from before the wake"
                                : "",
             seconds(leak.first_s), seconds(leak.last_s),
             leak.trend.kind == TrendKind::unknown ? String() : "  " + trend_of(leak));
  if (by_library(leak) && !leak.is_host && leak.leak_class != LeakClass::live)
    sink.print("     allocated by a library, not by the program: {}\n", printable(leak.owner, kPathBytesShown));
  write_references(leak, running, sink);
  write_frames(leak.frames, frames_max, sink, entry.stacks);
}

Vector<Entry> unsuppressed(const Vector<LeakFigures>& all) {
  Vector<Entry> entries;
  for (const LeakFigures& leak : all)
    if (!leak.suppressed) entries.push_back({leak});
  return entries;
}

Vector<Entry> merged(Vector<Entry> entries, std::size_t frames_max) {
  const auto key = [&](const Entry& entry) {
    const LeakFigures& leak = entry.leak;
    return kept_apart_by(leak) + "|" + (by_library(leak) ? leak.owner : String()) + "|" +
           shown_frames(leak.frames, frames_max);
  };
  Vector<Entry> all = merged_by(std::move(entries), key, [](Entry& entry, const Entry& more) {
    add(entry.leak, more.leak);
    entry.stacks += more.stacks;
  });
  std::sort(all.begin(), all.end(),
            [](const Entry& one, const Entry& other) { return is_worse(one.leak, other.leak); });
  return all;
}

// A rule that named one of these would name all calls.
bool is_called_by_all(std::string_view function) {
  constexpr std::string_view kNames[] = {"operator new", "xmalloc", "xcalloc",  "xrealloc",
                                         "xstrdup",      "xzalloc", "xstrndup", "xmemdup"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [function](std::string_view name) { return function.starts_with(name); });
}

void write_how_to_suppress(const LeakFigures& leak, Sink& sink) {
  if (leak.frames.empty()) return;
  // A module that only passed the call on is named for all calls.
  const auto of_owner = std::find_if(leak.frames.begin(), leak.frames.end(), [&](const FrameFigures& f) {
    return !f.folded && basename_of(f.module) == leak.owner && !is_called_by_all(f.function);
  });
  const auto shown = of_owner != leak.frames.end() ? of_owner
                                                   : std::find_if(leak.frames.begin(), leak.frames.end(),
                                                                  [](const FrameFigures& f) { return !f.folded; });
  const FrameFigures& frame = shown == leak.frames.end() ? leak.frames.front() : *shown;
  const std::string_view name = !frame.function.empty() ? std::string_view(frame.function) : basename_of(frame.module);
  if (!name.empty())
    sink.print("     (to accept known leaks: CISTERN_SUPPRESSIONS=FILE, with lines such as leak:{})\n",
               printable(name, kPathBytesShown));
}

void write_leaks(const Snapshot& snapshot, Sink& sink) {
  Vector<Entry> leaks = merged(unsuppressed(snapshot.leaks), kFramesFull);
  if (leaks.empty()) return;
  const std::size_t frames_max = leaks.size() <= kSitesInFull ? kFramesFull : kFramesShort;
  if (frames_max != kFramesFull) leaks = merged(std::move(leaks), frames_max);
  sink.write(snapshot.ended_by_itself() ? "LEAKS BY SITE" : "LIVE BY SITE");
  if (leaks.size() > kSitesShown) sink.print(" (top {} of {})", kSitesShown, leaks.size());
  sink.write("\n");
  for (std::size_t i = 0; i < leaks.size() && i < kSitesShown; ++i)
    write_leak(leaks[i], i + 1, !snapshot.ended_by_itself(), frames_max, sink);
  if (snapshot.ended_by_itself()) write_how_to_suppress(leaks.front().leak, sink);
}

// Most programs leave host memory to the system: so it stands apart.
void write_host_sites(const Snapshot& snapshot, Sink& sink) {
  const bool all = snapshot.sites.ends_with("host:all");
  const std::size_t frames_max = all ? kFramesFull : kFramesShort;
  const Vector<Entry> sites = merged(unsuppressed(snapshot.host_sites), frames_max);
  const BlocksAndBytes rest = snapshot.host_without_site.value_or(BlocksAndBytes{0, 0});
  // Where samples were not drawn of any, a little is what every program has.
  constexpr std::uint64_t kLittle = 1 << 20;
  if (sites.empty() && !(rest.blocks && (all || rest.bytes > kLittle))) return;
  const std::size_t shown = std::min(sites.size(), all ? kSitesShown : kHostSitesShown);
  sink.print("LIVE HOST MEMORY BY SITE (top {} of {}{})\n", shown, sites.size(),
             all ? "" : "; smaller blocks are estimated from samples, CISTERN_SITES=all counts each");
  for (std::size_t i = 0; i < shown; ++i) write_leak(sites[i], i + 1, !snapshot.ended_by_itself(), frames_max, sink);
  if (rest.blocks)
    sink.print("      and {} in {} without a call site: {}\n", human_bytes(rest.bytes), counted(rest.blocks, "block"),
               all                           ? "allocated by Cistern itself, or before it was ready"
               : snapshot.have_sites_slept() ? "from before the wake, or no sample has their size and class"
                                             : "no sample has their size and class");
}

// Memory that grew until the end; the end may have freed it.
void write_growing(const Snapshot& snapshot, Sink& sink) {
  std::size_t shown = 0;
  for (const GrowingSite& site : snapshot.growing) {
    if (site.suppressed || shown == kGrowingShown) continue;
    if (!shown++) sink.print("GROWING BY SITE{}\n", snapshot.ended_by_itself() ? "  (until exit began)" : "");
    sink.print("  {}  {}, by {}{}\n", site.kind, growth(site.trend),
               human_bytes(static_cast<std::uint64_t>(site.trend.bytes)),
               site.api ? " (" + String(site.api) + ")" : String());
    write_frames(site.frames, kFramesShort, sink);
  }
}

// "cudaMalloc", for a line of its own frames.
String by_call(const UsingSite& site) { return site.api ? " (" + String(site.api) + ")" : String(); }

// The peaks of kinds that had more than they have at the end; the memory at the end is listed above.
void write_peaks(const Snapshot& snapshot, Sink& sink) {
  for (const KindFigures& kind : snapshot.kinds) {
    if (kind.peak_bytes <= kind.live_bytes) continue;
    if (kind.is_host && snapshot.host_peak_seen.value_or(0) <= kind.live_bytes + kind.live_bytes / 4) continue;
    std::size_t shown = 0;
    for (const UsingSite& site : snapshot.at_peak) {
      if (site.kind != kind.name) continue;
      const bool measured = kind.is_host && snapshot.host_peak_seen;
      if (!shown++)
        sink.print("PEAK BY SITE {}  of {}{}\n", kind.name,
                   human_bytes(measured ? *snapshot.host_peak_seen : kind.peak_bytes),
                   measured ? ", measured at intervals" : "");
      sink.print("  {} in {}{}\n", human_bytes(site.peak_bytes), counted(site.peak_blocks, "block"), by_call(site));
      write_frames(site.frames, kFramesOfPeaks, sink);
    }
  }
}

void write_loops(const Snapshot& snapshot, Sink& sink) {
  if (snapshot.in_loops.empty()) return;
  sink.write("ALLOCATED IN LOOPS  (each call takes time, and a free may wait for the device)\n");
  for (const UsingSite& site : snapshot.in_loops) {
    sink.print("  {}  {}, {} in total, {} of them freed right away{}\n", site.kind, counted(site.allocations, "block"),
               human_bytes(site.allocated_bytes), grouped(site.temporary), by_call(site));
    write_frames(site.frames, kFramesShort, sink);
  }
}

void write_objects(const Snapshot& snapshot, Sink& sink) {
  String alive;
  for (const ObjectFigures& object : snapshot.objects) {
    if (!object.alive) continue;
    if (!alive.empty()) alive += ", ";
    alive += String(object.type) + " " + grouped(object.alive) + " of " + grouped(object.created);
  }
  if (!alive.empty()) sink.print("LIVE OBJECTS  {}\n", alive);
  std::size_t shown = 0;
  for (const ObjectSite& site : snapshot.object_sites) {
    if (++shown > kObjectSitesShown) break;
    sink.print("  {} {}{}{}{}\n", grouped(site.alive), site.type, site.api ? " (" : "", site.api ? site.api : "",
               site.api ? ")" : "");
    write_frames(site.frames, kFramesOfPeaks, sink);
  }
}

void write_self(const Snapshot& snapshot, Sink& sink) {
  sink.write("SELF  ");
  if (snapshot.capture_mean_ns)
    sink.print("stack capture {} ns on average (sampled), ", decimal(*snapshot.capture_mean_ns, 0));
  sink.print("{}, tables {}", counted(snapshot.sites_count, "site"), human_bytes(snapshot.tables_bytes));
  if (snapshot.staging_bytes) sink.print(", bounce buffers {}", human_bytes(snapshot.staging_bytes));
  if (snapshot.staging_s) sink.print(", {:.3f} s copying to and from them", *snapshot.staging_s);
  if (snapshot.dropped_events) sink.print(", {} could not be read", counted(snapshot.dropped_events, "stack"));
  sink.write("\n");
  for (const PythonFigures& python : snapshot.pythons)
    if (python.why_not)
      sink.print("PYTHON {}.{}.{}  native frames only: {}\n", python.major, python.minor, python.micro, python.why_not);
  if (snapshot.estimated.empty()) return;
  String paths;
  for (const String& path : snapshot.estimated) {
    if (!paths.empty()) paths += ", ";
    paths += path;
  }
  sink.print("ESTIMATED  {}\n", paths);
}

}  // namespace

String sentence_of(const FamilyFigures& family) {
  String text = "child processes: " + grouped(family.judged()) + " judged";
  for (const Outcome outcome : {Outcome::failed, Outcome::undecided, Outcome::misconfigured})
    text += ", " + decimal(family.of(outcome), 0) + " " + name_of(outcome);
  return text;
}

void render_text(const Snapshot& snapshot, Sink& sink) {
  write_header(snapshot, sink);
  write_verdict(snapshot, sink);
  write_kinds(snapshot, sink);
  write_device_memory(snapshot, sink);
  write_device_ranges(snapshot, sink);
  write_contexts(snapshot, sink);
  write_leaks(snapshot, sink);
  write_host_sites(snapshot, sink);
  write_suppressions(snapshot, sink);
  write_growing(snapshot, sink);
  write_peaks(snapshot, sink);
  write_loops(snapshot, sink);
  write_objects(snapshot, sink);
  write_pools(snapshot, sink);
  write_library_pools(snapshot, sink);
  write_sizes(snapshot, sink);
  write_fragmentation(snapshot, sink);
  write_transfers(snapshot, sink);
  write_waits(snapshot, sink);
  write_staging(snapshot, sink);
  write_gathered(snapshot, sink);
  write_self(snapshot, sink);
}

}  // namespace cistern
