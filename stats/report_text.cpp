// The text report: verdict first, then what explains it, at most about a screen. JSON has all figures.
#include <algorithm>
#include <cstdio>

#include "pool/size_class.hpp"
#include "stats/format.hpp"
#include "stats/report.hpp"

namespace cistern {
namespace {

constexpr std::size_t kSitesShown = 10;
constexpr std::size_t kSitesInFull = 3;  // with more sites than this, each shows fewer frames
constexpr std::size_t kFramesFull = 8, kFramesShort = 3;
constexpr std::size_t kClassesShown = 6;
constexpr std::size_t kCommandBytes = 100;
constexpr std::size_t kPathBytes = 160;

bool while_running(const Snapshot& snapshot) { return std::string_view(snapshot.moment) == "call"; }

String seconds(double value) { return decimal(value, value < 10 ? 2 : 1) + " s"; }
String percent(double ratio) { return decimal(ratio * 100, 1) + " %"; }

// Blocks, bytes and sites of the leaks of one side: the program's or its libraries'.
struct Total {
  std::uint64_t blocks = 0, bytes = 0, sites = 0, without_site = 0;
  std::uint64_t kept_bytes = 0;  // part of `bytes`: parents that the program did release
  Vector<String> owners;

  void add(const LeakFigures& leak) {
    blocks += leak.blocks;
    bytes += leak.bytes;
    kept_bytes += leak.kept_parent_bytes.value_or(0);
    leak.frames.empty() ? without_site += leak.blocks : ++sites;
    if (std::find(owners.begin(), owners.end(), leak.owner) == owners.end()) owners.push_back(leak.owner);
  }
  // "3 blocks, 48.0 MiB never freed at 2 sites"
  String sentence(const char* state) const {
    String text = counted(blocks, "block") + ", " + human_bytes(bytes) + state;
    if (sites) text += " at " + counted(sites, "site");
    if (kept_bytes) text += ", " + human_bytes(kept_bytes) + " of it in released parents";
    return text;
  }
};

// Without a site nobody knows who made a block: it counts as the program's, which must not look clean then.
bool by_library(const LeakFigures& leak) { return !leak.owner.empty() && !leak.owned_by_program; }

void write_header(const Snapshot& snapshot, Sink& sink) {
  sink.print("cistern %s  %s  pid %d", snapshot.version.c_str(), printable(snapshot.command, kCommandBytes).c_str(),
             snapshot.pid);
  if (snapshot.rank) sink.print("  rank %d", *snapshot.rank);
  if (snapshot.rank && snapshot.ranks) sink.print("/%d", *snapshot.ranks);
  sink.print("  wall %s  sites=%s\n", seconds(snapshot.wall_s).c_str(), snapshot.sites.c_str());
}

String library_names(const Total& libraries) {
  String names;
  for (std::size_t i = 0; i < libraries.owners.size() && i < 3; ++i) {
    if (i) names += ", ";
    names += printable(libraries.owners[i], kPathBytes);
  }
  return libraries.owners.size() > 3 ? names + ", ..." : names;
}

void write_verdict(const Snapshot& snapshot, Sink& sink) {
  Total program, libraries;
  for (const LeakFigures& leak : snapshot.leaks) (by_library(leak) ? libraries : program).add(leak);
  const bool running = while_running(snapshot);
  const char* state = running ? " live" : " never freed";
  String verdict;
  if (program.blocks) verdict = program.sentence(state);
  if (libraries.blocks) {
    if (!program.blocks) verdict = running ? "nothing live of the program's own" : "nothing leaked by the program";
    verdict += "; by libraries: " + libraries.sentence(state) + " (" + library_names(libraries) + ")";
  }
  if (verdict.empty()) {
    const bool gpu = std::any_of(snapshot.kinds.begin(), snapshot.kinds.end(),
                                 [](const KindFigures& kind) { return kind.name != "host" && kind.allocations; });
    verdict = running ? "nothing live" : gpu ? "nothing leaked" : "nothing leaked: no GPU memory was used";
  }
  sink.print("%s  %s", running ? "LIVE   " : "VERDICT", verdict.c_str());
  sink.write(running ? "      (asked for by the program, which is still running)\n" : "      (exit code unchanged)\n");
  if (std::string_view(snapshot.moment) == "_exit") sink.write("         ended by _exit: destructors had not run\n");
  if (program.without_site + libraries.without_site) {
    const bool off = snapshot.sites.find("gpu:all") == String::npos;
    sink.print("         %s without a call site%s\n",
               counted(program.without_site + libraries.without_site, "block").c_str(),
               off ? ": CISTERN_SITES=gpu keeps them" : ": the stack could not be read");
  }
}

String blocks_and_bytes(std::uint64_t blocks, std::uint64_t bytes) {
  return blocks ? human_bytes(bytes) + " in " + grouped(blocks) : String("-");
}

String hit_rate(std::uint64_t hits, std::uint64_t misses) {
  if (!(hits + misses)) return "-";
  return decimal(100 * static_cast<double>(hits) / static_cast<double>(hits + misses), 1);
}

void write_kind(const KindFigures& kind, Sink& sink) {
  const String live = blocks_and_bytes(kind.live_blocks, kind.live_bytes);
  String peak = kind.peak_bytes ? human_bytes(kind.peak_bytes) : String("-");
  if (kind.peak_bytes && kind.peak_at_s) peak += " (" + seconds(*kind.peak_at_s) + ")";
  String driver, hits;
  if (kind.pooled_kind) {
    driver = grouped(kind.driver_allocs + kind.driver_frees + kind.driver_syncs + kind.driver_queries);
    hits = hit_rate(kind.pool_hits, kind.pool_misses);
  }
  sink.print("  %-8s  %-22s  %-22s  %11s  %12s  %6s  %6s\n", kind.name.c_str(), live.c_str(), peak.c_str(),
             grouped(kind.allocations).c_str(), driver.c_str(), hits.c_str(),
             kind.failed ? grouped(kind.failed).c_str() : "-");
  String reasons;
  for (const UnpooledFigure& figure : kind.unpooled) {
    if (!reasons.empty()) reasons += ", ";
    reasons += String(figure.reason) + " " + grouped(figure.count);
  }
  if (!reasons.empty()) sink.print("            unpooled: %s\n", reasons.c_str());
  if (kind.pooled_blocks)
    sink.print("            pool-cached (not a leak): %s\n",
               blocks_and_bytes(kind.pooled_blocks, kind.pooled_bytes).c_str());
}

void write_kinds(const Snapshot& snapshot, Sink& sink) {
  if (snapshot.kinds.empty()) return;
  sink.print("%-10s  %-22s  %-22s  %11s  %12s  %6s  %6s\n", "KIND", while_running(snapshot) ? "live" : "live@exit",
             "peak (at t)", "allocs", "driver calls", "hit%", "failed");
  for (const KindFigures& kind : snapshot.kinds) write_kind(kind, sink);
}

// "libfoo.so+0x1a2b": what the offline tools need where names are missing.
String place_in_module(const FrameFigures& frame) {
  char number[24];
  const bool known = !frame.module.empty();
  std::snprintf(number, sizeof number, "0x%llx", static_cast<unsigned long long>(known ? frame.offset : frame.address));
  if (!known) return String(number) + " (generated code)";
  const std::size_t slash = frame.module.rfind('/');
  return printable(slash == String::npos ? frame.module : frame.module.substr(slash + 1), kPathBytes) + "+" + number;
}

void write_frame(const FrameFigures& frame, int width, Sink& sink) {
  if (frame.function.empty() && frame.file.empty()) return sink.print("     %s\n", place_in_module(frame).c_str());
  String place = place_in_module(frame);
  if (!frame.file.empty()) place = printable(frame.file, kPathBytes);
  if (!frame.file.empty() && frame.line) place += ":" + decimal(frame.line, 0);
  const String function = frame.function.empty() ? String("?") : printable(frame.function, kPathBytes);
  sink.print("     %-*s  %s%s\n", width, function.c_str(), place.c_str(), frame.inlined ? "  (inlined)" : "");
}

// The frames behind main are the C library's and say nothing.
std::size_t frames_to_main(const Vector<FrameFigures>& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i)
    if (frames[i].function == "main") return i + 1;
  return frames.size();
}

void write_frames(const Vector<FrameFigures>& frames, std::size_t frames_max, Sink& sink) {
  const std::size_t telling = frames_to_main(frames);
  const std::size_t shown = std::min(telling, frames_max);
  std::size_t width = 12;
  for (std::size_t i = 0; i < shown; ++i) width = std::max(width, std::min<std::size_t>(frames[i].function.size(), 40));
  for (std::size_t i = 0; i < shown; ++i) write_frame(frames[i], static_cast<int>(width), sink);
  if (shown < telling && frames_max == kFramesFull) sink.print("     ... %zu more\n", telling - shown);
}

// Reference counts are shown where they explain why a block is alive.
void write_references(const LeakFigures& leak, bool running, Sink& sink) {
  const bool over_retained = !running && leak.retained && leak.released >= leak.created;
  if (leak.retained || leak.released)
    sink.print("     created %s, retained %s, released %s%s\n", grouped(leak.created).c_str(),
               grouped(leak.retained).c_str(), grouped(leak.released).c_str(), over_retained ? ": over-retained" : "");
  if (leak.kept_parent_bytes)
    sink.print("     keeps its released parent alive: %s\n", human_bytes(*leak.kept_parent_bytes).c_str());
}

void write_leak(const LeakFigures& leak, std::size_t rank, bool running, std::size_t frames_max, Sink& sink) {
  const String bytes = leak.bytes ? human_bytes(leak.bytes) + " in " : String();
  sink.print("%2zu  %s  %s%s (%s%s%s)  %s  first %s  last %s\n", rank, leak.kind.c_str(), bytes.c_str(),
             counted(leak.blocks, "block").c_str(), leak.object, leak.api ? ", " : "", leak.api ? leak.api : "",
             running ? "live" : leak.leak_class, seconds(leak.first_s).c_str(), seconds(leak.last_s).c_str());
  if (by_library(leak))
    sink.print("     made by a library, not the program: %s\n", printable(leak.owner, kPathBytes).c_str());
  write_references(leak, running, sink);
  write_frames(leak.frames, frames_max, sink);
}

void write_leaks(const Snapshot& snapshot, Sink& sink) {
  const Vector<LeakFigures>& leaks = snapshot.leaks;
  if (leaks.empty()) return;
  sink.write(while_running(snapshot) ? "LIVE BY SITE" : "LEAKS BY SITE");
  if (leaks.size() > kSitesShown) sink.print(" (top %zu of %zu)", kSitesShown, leaks.size());
  sink.write("\n");
  const std::size_t frames_max = leaks.size() <= kSitesInFull ? kFramesFull : kFramesShort;
  for (std::size_t i = 0; i < leaks.size() && i < kSitesShown; ++i)
    write_leak(leaks[i], i + 1, while_running(snapshot), frames_max, sink);
}

void write_objects(const Snapshot& snapshot, Sink& sink) {
  String alive;
  for (const ObjectFigures& object : snapshot.objects) {
    if (!object.alive) continue;
    if (!alive.empty()) alive += ", ";
    alive += String(object.type) + " " + grouped(object.alive) + " of " + grouped(object.created);
  }
  if (!alive.empty()) sink.print("OBJECTS ALIVE  %s\n", alive.c_str());
}

void write_class(const ClassFigures& figures, Sink& sink) {
  sink.print("  %-16s  %11s  %8s  %24s  %6s  %10s\n", report_class_name(figures.size_class),
             grouped(figures.allocations).c_str(), grouped(figures.live_blocks).c_str(),
             blocks_and_bytes(figures.cached_blocks, figures.cached_bytes).c_str(),
             hit_rate(figures.hits, figures.allocations - std::min(figures.hits, figures.allocations)).c_str(),
             grouped(figures.high_water_blocks).c_str());
}

void write_pools(const KindFigures& kind, Sink& sink) {
  if (!kind.pooled_kind || kind.classes.empty()) return;
  Vector<ClassFigures> classes = kind.classes;
  // By class where counts are equal: std::stable_sort would allocate.
  std::sort(classes.begin(), classes.end(), [](const ClassFigures& a, const ClassFigures& b) {
    return a.allocations != b.allocations ? a.allocations > b.allocations : a.size_class < b.size_class;
  });
  if (classes.size() > kClassesShown) classes.resize(kClassesShown);
  std::sort(classes.begin(), classes.end(),
            [](const ClassFigures& a, const ClassFigures& b) { return a.size_class < b.size_class; });
  sink.print("POOLS %s", kind.name.c_str());
  if (kind.classes.size() > classes.size()) sink.print(" (%zu busiest of %zu)", classes.size(), kind.classes.size());
  sink.print("\n  %-16s  %11s  %8s  %24s  %6s  %10s\n", "class", "allocs", "live", "cached", "hit%", "high-water");
  for (const ClassFigures& figures : classes) write_class(figures, sink);
}

void write_fragmentation(const Snapshot& snapshot, Sink& sink) {
  for (const FragmentationFigures& figures : snapshot.fragmentation) {
    if (!figures.reserved_bytes) continue;
    sink.print("FRAGMENTATION %s  reserved %s  live %s", figures.kind.c_str(),
               human_bytes(figures.reserved_bytes).c_str(), human_bytes(figures.live_bytes).c_str());
    if (figures.live_bytes) sink.print("  internal %s", percent(figures.internal_ratio()).c_str());
    if (figures.free_bytes)
      sink.print("  external %s  largest free block %s", percent(figures.external_ratio()).c_str(),
                 human_bytes(figures.largest_free_bytes).c_str());
    sink.write("\n");
  }
}

void write_self(const Snapshot& snapshot, Sink& sink) {
  sink.write("SELF  ");
  if (snapshot.capture_mean_ns)
    sink.print("capture %s ns mean (sampled), ", decimal(*snapshot.capture_mean_ns, 0).c_str());
  sink.print("%s, tables %s", counted(snapshot.sites_count, "site").c_str(),
             human_bytes(snapshot.tables_bytes).c_str());
  if (snapshot.dropped_events) sink.print(", %s dropped", counted(snapshot.dropped_events, "event").c_str());
  sink.write("\n");
  if (snapshot.estimated.empty()) return;
  String paths;
  for (const String& path : snapshot.estimated) {
    if (!paths.empty()) paths += ", ";
    paths += path;
  }
  sink.print("ESTIMATED  %s\n", paths.c_str());
}

}  // namespace

void render_text(const Snapshot& snapshot, Sink& sink) {
  write_header(snapshot, sink);
  write_verdict(snapshot, sink);
  write_kinds(snapshot, sink);
  write_leaks(snapshot, sink);
  write_objects(snapshot, sink);
  for (const KindFigures& kind : snapshot.kinds) write_pools(kind, sink);
  write_fragmentation(snapshot, sink);
  write_self(snapshot, sink);
}

}  // namespace cistern
