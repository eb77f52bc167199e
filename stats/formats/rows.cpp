// See rows.hpp.
#include "stats/formats/rows.hpp"

#include <algorithm>
#include <unordered_map>

#include "stats/report/text_parts.hpp"

namespace cistern::formats {
namespace {

String text(const std::string& from) { return {from.data(), from.size()}; }

// On a stack of Python code, native frames are only counted, as a process does in its text by default.
Vector<FrameFigures> figures_of(const Run& run, StackId stack) {
  Vector<FrameFigures> figures;
  const bool any_python = is_of_python(run, stack);
  for (const FrameId id : run.stacks[stack]) {
    const Frame& frame = run.frames[id];
    FrameFigures one{};
    one.function = text(frame.function), one.file = text(frame.file), one.module = text(frame.module);
    one.line = static_cast<decltype(one.line)>(frame.line);
    one.offset = frame.offset, one.address = frame.address, one.inlined = frame.inlined, one.python = frame.python;
    one.folded = any_python && !frame.python;
    figures.push_back(std::move(one));
  }
  return figures;
}

void add(Entry& entry, const LiveRow& row) {
  LiveRow& all = entry.row;
  all.blocks += row.blocks, all.bytes += row.bytes;
  all.first_s = std::min(all.first_s, row.first_s), all.last_s = std::max(all.last_s, row.last_s);
  if (row.trend == "growing") all.trend = row.trend;
  ++entry.rows;
}

}  // namespace

// Host memory that a driver holds is the driver's own: no program could free it.
Standing standing_of(const std::string& kind, const std::string& leak_class) {
  const bool drivers = leak_class == "held only by the driver";
  if (leak_class == "lost" || leak_class == "indirectly lost" || (drivers && kind != "host")) return Standing::lost;
  if (leak_class == "possibly lost") return Standing::possibly_lost;
  return leak_class == "reachable" ? Standing::reachable : Standing::never_freed;
}

const char* name_of(Standing standing) {
  constexpr const char* kNames[] = {"lost", "possibly lost", "never freed", "reachable"};
  return kNames[static_cast<int>(standing)];
}

bool is_of_python(const Run& run, StackId stack) {
  return std::ranges::any_of(run.stacks[stack], [&](FrameId id) { return run.frames[id].python; });
}

std::string frame_lines(const Run& run, StackId stack, std::size_t frames_max) {
  StringSink lines;
  write_frames(figures_of(run, stack), frames_max, lines);
  return {lines.text().data(), lines.text().size()};
}

std::vector<Entry> entries(const Run& run, const EntriesOf& which) {
  std::vector<Entry> all;
  std::vector<std::size_t> last_process;  // the number of the last report that has each entry
  std::unordered_map<std::string, std::size_t> places;
  std::vector<std::string> shown(run.stacks.size());
  for (std::size_t process = 0; process < run.reports.size(); ++process) {
    for (const LiveRow& row : run.reports[process].leaks) {
      if ((row.suppressed && !which.suppressed) || !(row.kind == "host" ? which.host : which.gpu)) continue;
      std::string& lines = shown[row.frames];
      if (lines.empty()) {
        const String text = shown_frames(figures_of(run, row.frames), which.frames_max);
        lines.assign("|").append(text.data(), text.size());
      }
      const std::string key = row.kind + '|' + row.leak_class + '|' + row.object + '|' + row.api + lines;
      const auto [at, is_new] = places.try_emplace(key, all.size());
      if (is_new) {
        all.push_back({row});
        last_process.push_back(process);
        continue;
      }
      Entry& entry = all[at->second];
      add(entry, row);
      entry.processes += std::exchange(last_process[at->second], process) != process;
    }
  }
  std::ranges::stable_sort(all, [](const Entry& one, const Entry& other) {
    const Standing a = standing_of(one.row), b = standing_of(other.row);
    return a != b ? a < b : one.row.bytes > other.row.bytes;
  });
  return all;
}

}  // namespace cistern::formats
