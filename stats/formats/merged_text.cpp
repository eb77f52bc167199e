// A merged report as text: each kind with its extremes and outliers, then the call sites.
#include <algorithm>

#include "stats/format.hpp"
#include "stats/formats/merged.hpp"
#include "stats/formats/rows.hpp"
#include "stats/formats/summary.hpp"
#include "stats/report/text_parts.hpp"

namespace cistern::formats {
namespace {

constexpr double kOutlier = 1.5;  // times the mean

String processes(Count count) { return count == 1 ? String("1 process") : grouped(count) + " processes"; }

// "1.0 MiB (rank 3) to 2.0 MiB (rank 0)"
String range(const Spread& spread) {
  const auto at = [](const Spread::At& one) { return human_bytes(one.value) + " (" + printable(one.process) + ")"; };
  return at(spread.least) + " to " + at(spread.most);
}

void write_kind(const std::string& name, const MergedKind& kind, Sink& sink) {
  sink.print("{}  in {}: live {}, each {}\n", name, processes(kind.live_bytes.processes),
             human_bytes(kind.live_bytes.sum), range(kind.live_bytes));
  sink.print("      peaks {}; {}, {} failed\n", range(kind.peak_bytes), counted(kind.allocations.sum, "allocation"),
             grouped(kind.failed.sum));
  const double mean = static_cast<double>(kind.peak_bytes.sum) / static_cast<double>(kind.peak_bytes.processes);
  for (const Spread::At& at : kind.largest)
    if (static_cast<double>(at.value) > kOutlier * mean)
      sink.print("      outlier: {} peaks at {}, {} times the mean\n", printable(at.process), human_bytes(at.value),
                 decimal(static_cast<double>(at.value) / mean, 1));
}

void write_site(const MergedSite& site, std::size_t number, Sink& sink) {
  Run one{site.frames, {Stack{}, Stack{}}, {}};
  for (FrameId id = 0; id < site.frames.size(); ++id) one.stacks[1].push_back(id);
  sink.print("{:>2}  {}  {} in {}  {}  in {}, at most {} ({})\n{}", number, site.kind, human_bytes(site.bytes.sum),
             counted(site.blocks, "block"), site.leak_class, processes(site.bytes.processes),
             human_bytes(site.bytes.most.value), printable(site.bytes.most.process), frame_lines(one, 1, kFramesShort));
}

}  // namespace

std::string merged_text(const Merged& merged, std::size_t sites_max) {
  StringSink sink;
  sink.print("{}\n", processes(merged.processes));
  for (const auto& [name, kind] : merged.kinds) write_kind(name, kind, sink);
  std::vector<const MergedSite*> sites;
  for (const auto& [key, site] : merged.sites) sites.push_back(&site);
  std::ranges::stable_sort(sites, [](const MergedSite* one, const MergedSite* other) {
    const Standing a = standing_of(one->leak_class), b = standing_of(other->leak_class);
    return a != b ? a < b : one->bytes.sum > other->bytes.sum;
  });
  for (std::size_t i = 0; i < sites.size() && i < sites_max; ++i) write_site(*sites[i], i + 1, sink);
  return plain_lines({sink.text().data(), sink.text().size()});
}

}  // namespace cistern::formats
