// See summary.hpp.
#include "stats/formats/summary.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "stats/format.hpp"
#include "stats/formats/hints.hpp"
#include "stats/formats/rows.hpp"
#include "stats/report/text_parts.hpp"

namespace cistern::formats {
namespace {

// Blocks, bytes and sites of some entries.
struct Total {
  Count blocks = 0, bytes = 0, sites = 0;
  bool may_be_freed = true;  // the program runs
  void add(const Entry& entry) {
    blocks += entry.row.blocks, bytes += entry.row.bytes;
    sites += entry.row.frames != 0;
    may_be_freed &= entry.row.leak_class == "live";
  }
};

String sentence(const Total& total, const char* state) {
  String text = counted(total.blocks, "block") + ", " + human_bytes(total.bytes) + " " + state;
  if (total.sites) text += " at " + counted(total.sites, "site");
  return text;
}

void join(String& text, const String& part) {
  if (part.empty()) return;
  if (!text.empty()) text += "; ";
  text += part;
}

// "3 blocks, 3.0 MiB lost at 1 site; 1 block, 1.0 MiB reachable at 1 site"
String by_standing(const std::vector<Entry>& entries) {
  Total totals[4];
  for (const Entry& entry : entries) totals[static_cast<int>(standing_of(entry.row))].add(entry);
  String text;
  for (int i = 0; i < 4; ++i)
    if (totals[i].blocks)
      join(text, sentence(totals[i], totals[i].may_be_freed ? "live" : name_of(static_cast<Standing>(i))));
  return text;
}

// "host memory: 14.0 KiB in 93 blocks lost": the rest of it is what every program leaves to the system.
String lost_of_host(const Run& run) {
  Count blocks = 0, bytes = 0;
  for (const Report& report : run.reports) {
    for (const auto& [name, some] : report.host_classes)
      if (name == "lost" || name == "indirectly lost") blocks += some.blocks, bytes += some.bytes;
  }
  return blocks ? "host memory: " + human_bytes(bytes) + " in " + counted(blocks, "block") + " lost" : String();
}

String growth(const Run& run) {
  std::set<std::string> sites;
  Count bytes = 0;
  for (const Report& report : run.reports) {
    for (const GrowingRow& row : report.growing) {
      if (row.suppressed) continue;
      sites.insert(row.kind + '|' + row.api + '|' + frame_lines(run, row.frames, kFramesFull));
      bytes += row.bytes;
    }
  }
  return sites.empty() ? String() : "GROWING by " + human_bytes(bytes) + " at " + counted(sites.size(), "site");
}

String failures(const Run& run) {
  Count failed = 0;
  for (const Report& report : run.reports)
    for (const auto& [name, kind] : report.kinds) failed += kind.failed;
  return failed ? counted(failed, "request") + " for memory failed" : String();
}

// --- The table of kinds
// Over processes: what is added up, and the largest of one process where a sum would be a moment that never was.
struct KindOfRun {
  Count live_blocks = 0, live_bytes = 0, peak_bytes = 0, pooled_bytes = 0, allocations = 0, hits = 0, failed = 0;
  bool pooled = false, estimated = false;
};

std::vector<std::pair<std::string, KindOfRun>> kinds_of(const Run& run) {
  std::vector<std::pair<std::string, KindOfRun>> all;
  for (const Report& report : run.reports) {
    for (const auto& [name, kind] : report.kinds) {
      auto at = std::ranges::find(all, name, &std::pair<std::string, KindOfRun>::first);
      if (at == all.end()) at = all.insert(all.end(), {name, {}});
      KindOfRun& sum = at->second;
      sum.live_blocks += kind.live_blocks, sum.live_bytes += kind.live_bytes;
      sum.peak_bytes = std::max(sum.peak_bytes, kind.peak_bytes);
      sum.pooled_bytes += kind.pooled_bytes, sum.allocations += kind.allocations, sum.hits += kind.pool_hits;
      sum.failed += kind.failed;
      sum.pooled |= kind.pooled;
      sum.estimated |= std::ranges::find(report.estimated, "kinds." + name + ".peak_bytes") != report.estimated.end();
    }
  }
  return all;
}

void write_kinds(const Run& run, Sink& sink) {
  const bool several = run.reports.size() > 1;
  sink.print("{:<12}  {:<22}  {:<20}  {:>10}  {:>12}  {:>6}  {:>6}\n", "KIND", "live at the end",
             several ? "peak of one process" : "peak", "cached", "allocs", "hit%", "failed");
  for (const auto& [name, kind] : kinds_of(run)) {
    const String peak = kind.peak_bytes ? (kind.estimated ? "about " : "") + human_bytes(kind.peak_bytes) : String("-");
    sink.print("  {:<10}  {:<22}  {:<20}  {:>10}  {:>12}  {:>6}  {:>6}\n", name,
               blocks_and_bytes(kind.live_blocks, kind.live_bytes), peak,
               kind.pooled_bytes ? human_bytes(kind.pooled_bytes) : String("-"), grouped(kind.allocations),
               kind.pooled ? hit_rate(kind.hits, kind.allocations) : String(),
               kind.failed ? grouped(kind.failed) : String("-"));
  }
}

// --- Processes and leaks
void write_recorded(const Recorded& of, Sink& sink) {
  sink.print("recorded: {}, {} of file\n", counted(of.events, "event"), human_bytes(of.file_bytes));
  for (const auto& [what, sentence] : of.missing) {
    String word(std::string_view{what});
    for (char& letter : word) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    sink.print("{}  {}\n", word, sentence);
  }
}

void write_processes(const Run& run, Sink& sink) {
  constexpr std::size_t kShown = 3, kCommandBytes = 100;
  std::vector<const Report*> reports;
  for (const Report& report : run.reports) reports.push_back(&report);
  std::ranges::stable_sort(reports, [](const Report* one, const Report* other) {
    return one->cistern.gpu_memory_used > other->cistern.gpu_memory_used;
  });
  for (std::size_t i = 0; i < reports.size() && i < kShown; ++i) {
    const Process& process = reports[i]->cistern;
    sink.print("{}  pid {}", printable(process.command, kCommandBytes), process.pid);
    if (process.rank) sink.print("  rank {}", *process.rank);
    sink.print("  wall {}\n", seconds(process.wall_s));
    if (reports[i]->recorded) write_recorded(*reports[i]->recorded, sink);
  }
  if (const Count more = reports.size() - std::min(reports.size(), kShown))
    sink.print("and {}\n", more == 1 ? String("1 other process") : grouped(more) + " other processes");
}

// All memory of GPU kinds; host memory only if it is lost.
std::vector<Entry> listed(const Run& run) {
  std::vector<Entry> all = entries(run, {.host = false});
  for (const Entry& entry : entries(run, {.gpu = false}))
    if (standing_of(entry.row) == Standing::lost) all.push_back(entry);
  return all;
}

// Line `number` of a source file, without the space around it; empty: it is not here.
std::string source_line(const std::string& path, Count number) {
  std::ifstream file(path);
  std::string line;
  for (Count i = 0; i < number; ++i)
    if (!std::getline(file, line)) return {};
  const std::size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
  return first == line.npos ? std::string() : line.substr(first, last - first + 1);
}

void write_source(const Run& run, StackId stack, Sink& sink) {
  std::size_t shown = 0;
  for (const FrameId id : run.stacks[stack]) {
    const Frame& frame = run.frames[id];
    if (!frame.line || shown == kFramesShort) continue;
    const std::string line = source_line(frame.file, frame.line);
    if (line.empty()) continue;
    sink.print("     | {}:{}  {}\n", printable(frame.file, kPathBytesShown), frame.line,
               printable(line, kPathBytesShown));
    ++shown;
  }
}

void write_leaks(const Run& run, const SummaryOptions& options, Sink& sink) {
  const std::vector<Entry> shown = listed(run);
  const std::size_t sites_max = options.sites_max;
  if (shown.empty()) return;
  sink.print("LEAKS BY SITE");
  if (shown.size() > sites_max) sink.print(" ({} of {})", sites_max, shown.size());
  sink.write("\n");
  for (std::size_t i = 0; i < shown.size() && i < sites_max; ++i) {
    const LiveRow& row = shown[i].row;
    sink.print("{:>2}  {}  {} in {} ({}{}{})  {}", i + 1, row.kind, human_bytes(row.bytes),
               counted(row.blocks, "block"), row.object, row.api.empty() || row.object.starts_with(row.api) ? "" : ", ",
               row.object.starts_with(row.api) ? "" : row.api, row.leak_class);
    if (!row.trend.empty()) sink.print("  {}", row.trend);
    if (shown[i].processes > 1) sink.print("  in {} processes", shown[i].processes);
    sink.print("\n{}", frame_lines(run, row.frames, kFramesShort));
    if (options.source) write_source(run, row.frames, sink);
  }
}

// The call sites of the largest peak, of a GPU's kind if there is one: where nothing leaked.
void write_peak(const Run& run, std::size_t sites_max, Sink& sink) {
  const std::pair<std::string, Kind>* largest = nullptr;
  const Report* of = nullptr;
  const auto rank = [](const auto& kind) { return std::pair(kind.first != "host", kind.second.peak_bytes); };
  for (const Report& report : run.reports)
    for (const auto& kind : report.kinds)
      if (std::ranges::find(report.at_peak, kind.first, &UseRow::kind) != report.at_peak.end() &&
          (!largest || rank(kind) > rank(*largest)))
        largest = &kind, of = &report;
  if (!largest) return;
  const auto& [name, kind] = *largest;
  const bool is_estimated = std::ranges::find(of->estimated, "kinds." + name + ".peak_bytes") != of->estimated.end();
  sink.print("LARGEST AT THE PEAK OF {}  {}{} at {}\n", printable(name, 40), is_estimated ? "about " : "",
             human_bytes(kind.peak_bytes), seconds(kind.peak_at_s.value_or(0)));
  std::size_t listed = 0;
  for (const UseRow& row : of->at_peak) {
    if (row.kind != name || listed == sites_max) continue;
    sink.print("{:>2}  {} in {}  {}\n{}", ++listed, human_bytes(row.peak_bytes), counted(row.peak_blocks, "block"),
               row.api, frame_lines(run, row.frames, kFramesShort));
  }
}

// Memory that grew until the end, which may have freed it. The fastest first.
void write_growing(const Run& run, Sink& sink) {
  constexpr std::size_t kShown = 3;
  std::vector<const GrowingRow*> rows;
  for (const Report& report : run.reports)
    for (const GrowingRow& row : report.growing)
      if (!row.suppressed) rows.push_back(&row);
  std::ranges::stable_sort(
      rows, [](const GrowingRow* one, const GrowingRow* other) { return one->bytes_per_s > other->bytes_per_s; });
  if (!rows.empty()) sink.write("GROWING BY SITE\n");
  for (std::size_t i = 0; i < rows.size() && i < kShown; ++i) {
    const GrowingRow& row = *rows[i];
    sink.print("    {}  {}/s since {}, by {}{}\n{}", row.kind, human_bytes(static_cast<Count>(row.bytes_per_s + 0.5)),
               seconds(row.since_s), human_bytes(row.bytes), row.api.empty() ? "" : " (" + row.api + ")",
               frame_lines(run, row.frames, kFramesShort));
  }
}

}  // namespace

// Also the second set of controls (U+0080 to U+009F), and characters that turn the direction of writing.
std::string plain_lines(std::string text) {
  const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned one = byte(i), two = byte(i + 1), three = byte(i + 2);
    const bool control = (one < 0x20 && one != '\n') || one == 0x7F;
    const bool control_of_two = one == 0xC2 && two >= 0x80 && two < 0xA0;
    const bool turns = one == 0xE2 && ((two == 0x80 && three >= 0xAA && three <= 0xAE) ||
                                       (two == 0x81 && three >= 0xA6 && three <= 0xA9));
    if (control || control_of_two || turns) text.replace(i, turns ? 3 : control_of_two ? 2 : 1, "?");
  }
  return text;
}

std::string verdict(const Run& run) {
  const bool used_gpu = std::ranges::any_of(run.reports, [](const Report& r) { return r.cistern.gpu_memory_used; });
  String text = by_standing(entries(run, {.host = false}));
  if (text.empty()) text = used_gpu ? "nothing leaked on the GPU" : "no GPU memory was used";
  join(text, growth(run));
  join(text, failures(run));
  join(text, lost_of_host(run));
  if (run.reports.size() > 1) text += "  (" + grouped(run.reports.size()) + " processes)";
  return plain_lines({text.data(), text.size()});
}

std::string summary(const Run& run, const SummaryOptions& options) {
  StringSink sink;
  write_processes(run, sink);
  sink.print("VERDICT  {}\n", verdict(run));
  write_kinds(run, sink);
  write_leaks(run, options, sink);
  if (listed(run).empty()) write_peak(run, options.sites_max, sink);
  write_growing(run, sink);
  for (const std::string& hint : hints(run)) sink.print("HINT  {}\n", hint);
  return plain_lines({sink.text().data(), sink.text().size()});
}

std::string summary_json(const Run& run) {
  using Json = nlohmann::ordered_json;
  Json json = {{"verdict", verdict(run)},
               {"processes", run.reports.size()},
               {"kinds", Json::object()},
               {"leaks", Json::array()},
               {"hints", hints(run)}};
  for (const auto& [name, kind] : kinds_of(run))
    json["kinds"][name] = {{"live_blocks", kind.live_blocks},
                           {"live_bytes", kind.live_bytes},
                           {"peak_bytes_max", kind.peak_bytes},
                           {"pooled_bytes", kind.pooled_bytes},
                           {"allocations", kind.allocations},
                           {"pool_hits", kind.hits},
                           {"failed", kind.failed}};
  for (const Entry& entry : listed(run)) {
    Json frames = Json::array();
    for (const FrameId id : run.stacks[entry.row.frames]) {
      const Frame& frame = run.frames[id];
      frames.push_back(
          {{"function", frame.function}, {"file", frame.file}, {"line", frame.line}, {"module", frame.module}});
    }
    json["leaks"].push_back({{"kind", entry.row.kind},
                             {"class", entry.row.leak_class},
                             {"object", entry.row.object},
                             {"api", entry.row.api},
                             {"blocks", entry.row.blocks},
                             {"bytes", entry.row.bytes},
                             {"rows", entry.rows},
                             {"processes", entry.processes},
                             {"frames", frames}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cistern::formats
