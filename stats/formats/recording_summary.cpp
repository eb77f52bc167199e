// See recording_summary.hpp.
#include "stats/formats/recording_summary.hpp"

#include "stats/format.hpp"
#include "stats/formats/recording_moments.hpp"
#include "stats/formats/rows.hpp"
#include "stats/report/text_parts.hpp"

namespace cistern::formats {
namespace {

void write_head(const Recording& recording, const RecordedTotals& all, Sink& sink) {
  constexpr std::size_t kCommandBytes = 100;
  const RecordingHead& head = recording.head();
  sink.print("{}  pid {}  recorded by Cistern {}\n", printable(head.command, kCommandBytes), head.pid,
             printable(head.version));
  sink.print(
      "{} in {} by {}, {} of file ({} bytes an event)\n", counted(all.events, "event"), seconds(all.last_s),
      counted(all.threads, "thread"), human_bytes(head.file_bytes),
      all.events ? decimal(static_cast<double>(head.file_bytes) / static_cast<double>(all.events), 1) : String("0"));
  if (!head.ended_s) sink.write("The process was killed, or still runs: stacks have modules and offsets only.\n");
  if (head.thinned_events)
    sink.print("THINNED  {} before {} are left out, since the file was full; memory that was live then is known.\n",
               counted(head.thinned_events, "event"), seconds(head.thinned_until_s));
  if (head.lost_events)
    sink.print("MISSING  {} could not be written, the first at {}.\n", counted(head.lost_events, "event"),
               seconds(head.lost_since_s));
  if (head.stopped_s) sink.print("STOPPED  Nothing is recorded from {} on.\n", seconds(*head.stopped_s));
}

void write_kinds(const RecordedTotals& all, Sink& sink) {
  sink.print("{:<12}  {:<30}  {:<24}  {:>12}  {:>8}  {:>20}\n", "KIND", "peak", "live at the end", "allocs", "failed",
             "copies");
  for (const auto& [number, kind] : all.kinds) {
    const String peak = blocks_and_bytes(kind.peak_blocks, kind.peak_bytes) + " at " + seconds(kind.peak_s);
    const String copies = human_bytes(kind.copied_bytes) + " in " + grouped(kind.copies);
    sink.print("  {:<10}  {:<30}  {:<24}  {:>12}  {:>8}  {:>20}\n", printable(kind.name, 40),
               kind.peak_bytes ? peak : String("-"), blocks_and_bytes(kind.live_blocks, kind.live_bytes),
               grouped(kind.allocations), kind.failed ? grouped(kind.failed) : String("-"),
               kind.copies ? copies : String("-"));
  }
}

// The kind whose peak is shown: the largest of a GPU's, and else host memory.
const std::pair<const Count, RecordedKind>* shown_kind(const RecordedTotals& all) {
  const std::pair<const Count, RecordedKind>* shown = nullptr;
  const auto rank = [](const RecordedKind& kind) { return std::pair(kind.name != "host", kind.peak_bytes); };
  for (const auto& one : all.kinds)
    if (one.second.peak_bytes && (!shown || rank(one.second) > rank(shown->second))) shown = &one;
  return shown;
}

void write_sites(const Recording& recording, const RecordedTotals& all, std::size_t sites_max, Sink& sink) {
  constexpr std::size_t kFrames = 4;
  const auto* const shown = shown_kind(all);
  if (!shown) return;
  const RecordedKind& kind = shown->second;
  sink.print("LARGEST AT THE PEAK OF {}  {} at {}\n", printable(kind.name, 40), human_bytes(kind.peak_bytes),
             seconds(kind.peak_s));
  std::size_t listed = 0;
  for (const RecordedUse& use : live_by_site(recording, {.events = kind.peak_events})) {
    if (use.kind != shown->first || listed == sites_max) continue;
    const RecordedSite* const site = recording.site(use.site);
    sink.print("{:>2}  {} in {}  {}\n", ++listed, human_bytes(use.bytes), counted(use.blocks, "block"),
               site ? printable(site->call, 60) : String("call site not known"));
    if (site) sink.print("{}", frame_lines(recording.run(), site->stack, kFrames));
  }
}

}  // namespace

std::string recording_summary(const Recording& recording, std::size_t sites_max) {
  const RecordedTotals all = totals(recording);
  StringSink sink;
  write_head(recording, all, sink);
  write_kinds(all, sink);
  write_sites(recording, all, sites_max, sink);
  return {sink.text().data(), sink.text().size()};
}

}  // namespace cistern::formats
