// See top.hpp.
#include "stats/formats/top.hpp"

#include <algorithm>
#include <cmath>

#include "stats/format.hpp"
#include "stats/formats/groups.hpp"
#include "stats/formats/summary.hpp"
#include "stats/sink.hpp"

namespace cistern::formats {
namespace {

// Lines of a screen, cut to its size: a continuation byte of UTF-8 takes no column.
class Lines {
 public:
  explicit Lines(const Screen& screen) : screen_(screen) {}
  std::size_t left() const { return screen_.rows - std::min(count_, screen_.rows); }
  void add(std::string line) {
    if (!left()) return;
    std::ranges::replace(line, '\n', '?');
    line = plain_lines(std::move(line));
    std::size_t columns = 0, bytes = 0;
    for (; bytes < line.size(); ++bytes)
      if ((line[bytes] & 0xc0) != 0x80 && ++columns > screen_.columns) break;
    text_ += line.substr(0, bytes) + "\n";
    ++count_;
  }
  template <class... Values>
  void print(fmt::format_string<Values...> format, Values&&... values) {
    add(fmt::vformat(format, fmt::make_format_args(values...)));
  }
  std::string take() { return std::move(text_); }

 private:
  const Screen screen_;
  std::size_t count_ = 0;
  std::string text_;
};

std::string bytes(Count count) {
  const String text = human_bytes(count);
  return {text.data(), text.size()};
}

struct Sums {
  Count live = 0, cached = 0, peak = 0, failed = 0;
};
// Host memory apart from all other kinds.
Sums sums_of(const Report& report, bool of_host) {
  Sums sums;
  for (const auto& [name, kind] : report.kinds) {
    if ((name == "host") != of_host) continue;
    sums.live += kind.live_bytes, sums.cached += kind.pooled_bytes;
    sums.peak += kind.peak_bytes, sums.failed += kind.failed;
  }
  return sums;
}

const Kind* kind_named(const Run* run, const std::string& name) {
  if (!run || run->reports.empty()) return nullptr;
  for (const auto& [other, kind] : run->reports[0].kinds)
    if (other == name) return &kind;
  return nullptr;
}

// "97.1%", of the requests since the look before; "-" where there was none.
std::string hit_rate(const Kind& now, const Kind* before) {
  const Count hits = now.pool_hits - (before ? before->pool_hits : 0);
  const Count all = hits + now.pool_misses - (before ? before->pool_misses : 0);
  if (!now.pooled || !all || hits > all) return "-";
  return fmt::format("{:.1f}%", 100.0 * static_cast<double>(hits) / static_cast<double>(all));
}

std::string rate(Count now, Count before, double seconds) {
  if (seconds <= 0 || now < before) return "-";
  return fmt::format("{:.0f}", static_cast<double>(now - before) / seconds);
}

// "+1.0 MiB/s"
std::string speed(long double bytes_grown, double seconds) {
  const long double a_second = bytes_grown / static_cast<long double>(seconds);
  return std::string(a_second < 0 ? "-" : "+") + bytes(static_cast<Count>(std::fabs(a_second))) + "/s";
}

void add_kinds(const Report& report, const Look& look, Lines& lines) {
  lines.print("{:<12} {:>10} {:>10} {:>10} {:>9} {:>9} {:>7} {:>7}", "KIND", "LIVE", "CACHED", "PEAK", "BLOCKS",
              "ALLOC/S", "HITS", "FAILED");
  for (const auto& [name, kind] : report.kinds) {
    const Kind* const before = kind_named(look.before, name);
    lines.print("{:<12} {:>10} {:>10} {:>10} {:>9} {:>9} {:>7} {:>7}", name, bytes(kind.live_bytes),
                kind.pooled ? bytes(kind.pooled_bytes) : "-", bytes(kind.peak_bytes), kind.live_blocks,
                before ? rate(kind.allocations, before->allocations, look.seconds) : "-", hit_rate(kind, before),
                kind.failed);
  }
}

void add_growing(const Look& look, Lines& lines) {
  std::vector<Change> changed = changes(*look.before, *look.run, GroupBy::site);
  std::erase_if(changed, [](const Change& change) { return change.growth(false) <= 0; });
  if (changed.empty()) return;
  lines.add("");
  lines.print("{:>12} {:>10} {:>9}  {}", "GROWS BY", "LIVE", "BLOCKS", "CALL SITE");
  // Half of what is left is for the largest ones.
  const std::size_t shown = std::min(changed.size(), lines.left() / 2);
  for (std::size_t i = 0; i < shown; ++i) {
    const Change& change = changed[i];
    lines.print("{:>12} {:>10} {:>9}  {}", speed(change.growth(false), look.seconds), bytes(change.after.bytes),
                change.after.blocks, change.after.name);
  }
}

void add_largest(const Look& look, Lines& lines) {
  const std::vector<Group> sites = groups(*look.run, GroupBy::site);
  if (sites.empty() || lines.left() < 3) return;
  lines.add("");
  lines.print("{:>12} {:>9}  {}", "LIVE", "BLOCKS", "CALL SITE");
  for (const Group& site : sites) {
    if (!lines.left()) return;
    lines.print("{:>12} {:>9}  {}", bytes(site.bytes), site.blocks, site.name);
  }
}

}  // namespace

std::string process_table(const std::vector<Watched>& processes, const Screen& screen) {
  Lines lines(screen);
  lines.print("{:>8} {:<16} {:>5} {:>10} {:>10} {:>10} {:>10} {:>7}", "PID", "PROGRAM", "RANK", "GPU LIVE", "CACHED",
              "PEAK", "HOST LIVE", "FAILED");
  for (const Watched& process : processes) {
    const auto others = static_cast<std::size_t>(processes.data() + processes.size() - &process);
    if (lines.left() == 1 && others > 1) {
      lines.print("{:>8} more", others);
      break;
    }
    if (!process.report) {
      lines.print("{:>8} {:<16} did not answer", process.pid, process.program);
      continue;
    }
    const Sums gpu = sums_of(*process.report, false), host = sums_of(*process.report, true);
    const auto& rank = process.report->cistern.rank;
    lines.print("{:>8} {:<16} {:>5} {:>10} {:>10} {:>10} {:>10} {:>7}", process.pid, process.program,
                rank ? std::to_string(*rank) : "-", bytes(gpu.live), bytes(gpu.cached), bytes(gpu.peak),
                bytes(host.live), gpu.failed + host.failed);
  }
  return lines.take();
}

std::string process_screen(const Watched& process, const Look& look, const Screen& screen) {
  Lines lines(screen);
  const Report& report = *process.report;
  lines.print("{}  pid {}  {:.0f} s  call sites: {}", process.program, process.pid, report.cistern.wall_s,
              report.sites.mode);
  lines.add("");
  add_kinds(report, look, lines);
  if (look.before && look.seconds > 0) add_growing(look, lines);
  add_largest(look, lines);
  return lines.take();
}

}  // namespace cistern::formats
