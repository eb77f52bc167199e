// See samples.hpp.
#include "stats/formats/samples.hpp"

#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "stats/formats/rows.hpp"

namespace cistern::formats {
namespace {

constexpr char kNoSite[] = "(no call site)", kOtherSites[] = "(other call sites)";

std::string hexadecimal(Count value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Frame clean(Frame frame) {
  frame.function = function_name(frame);
  frame.file = printable(frame.file);
  frame.module = printable(frame.module);
  frame.build_id = printable(frame.build_id);
  return frame;
}

// As the verdict counts: host memory that only a driver still holds is the driver's own.
bool is_lost(const LiveRow& row) { return !row.suppressed && standing_of(row) == Standing::lost; }

class Collector {
 public:
  explicit Collector(const Run& run) : run_(run) {
    for (const Frame& frame : run.frames) samples_.frames.push_back(clean(frame));
  }

  Samples collect() {
    for (const Report& report : run_.reports) {
      for (const LiveRow& row : report.leaks) add_row(report, row);
      if (const auto& rest = report.host_without_site; rest && rest->bytes)
        add_without_site(report, "host", kNoSite).live = {rest->blocks, rest->bytes};
      for (const UseRow& row : report.at_peak)
        add_at_site(report, row.kind, row.frames).peak = {row.peak_blocks, row.peak_bytes};
      add_rest_of_peaks(report);
      if (report.recorded) samples_.no_site = named(kNoSite), samples_.other_sites = named(kOtherSites);
    }
    return std::move(samples_);
  }

 private:
  void add_row(const Report& report, const LiveRow& row) {
    Sample& sample = add_at_site(report, row.kind, row.frames);
    sample.row = &row;
    sample.live = {row.blocks, row.bytes};
    if (is_lost(row)) sample.lost = sample.live;
  }

  Sample& add_at_site(const Report& report, const std::string& kind, StackId stack) {
    if (run_.stacks[stack].empty()) return add_without_site(report, kind, kNoSite);
    return add_sample(report, kind, run_.stacks[stack]);
  }
  Sample& add_without_site(const Report& report, const std::string& kind, const char* name) {
    return add_sample(report, kind, {named(name)});
  }
  Sample& add_sample(const Report& report, const std::string& kind, Stack stack) {
    if (std::ranges::find(samples_.kinds, kind) == samples_.kinds.end()) samples_.kinds.push_back(kind);
    const std::size_t site_frames = stack.size();
    stack.push_back(named(printable(kind)));
    if (run_.reports.size() > 1)
      stack.push_back(named(process_name(report.cistern) + " (pid " + std::to_string(report.cistern.pid) + ")"));
    return samples_.list.emplace_back(
        Sample{.report = &report, .row = nullptr, .kind = kind, .stack = std::move(stack), .site_frames = site_frames});
  }

  // A kind's peak is that of all its sites, of which the report has the largest.
  void add_rest_of_peaks(const Report& report) {
    for (const auto& [kind, figures] : report.kinds) {
      if (std::ranges::find(report.estimated, "kinds." + kind + ".peak_bytes") != report.estimated.end()) continue;
      Count named_bytes = 0;
      for (const UseRow& row : report.at_peak)
        if (row.kind == kind) named_bytes += row.peak_bytes;
      if (figures.peak_bytes > named_bytes)
        add_without_site(report, kind, kOtherSites).peak.bytes = figures.peak_bytes - named_bytes;
    }
  }

  FrameId named(const std::string& name) {
    const auto [at, is_new] = named_.try_emplace(name, static_cast<FrameId>(samples_.frames.size()));
    if (is_new) samples_.frames.emplace_back().function = name;
    return at->second;
  }

  const Run& run_;
  Samples samples_;
  std::unordered_map<std::string, FrameId> named_;
};

// The length of the UTF-8 character that the text begins with (RFC 3629); 0: it does not begin with one.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(at < text.size() ? text[at] : 0); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (!bytes || byte(1) < least || byte(1) > most) return 0;
  for (std::size_t at = 2; at < bytes; ++at)
    if ((byte(at) & 0xc0) != 0x80) return 0;
  return bytes;
}

}  // namespace

const Amount& Sample::at(Value value) const { return value == Value::live ? live : value == Value::lost ? lost : peak; }

Samples samples_of(const Run& run) { return Collector(run).collect(); }

std::string program_name(const Process& process) {
  return printable(file_name(std::string_view(process.command).substr(0, process.command.find(' '))));
}

std::string process_name(const Process& process) {
  return (process.rank ? "rank " + std::to_string(*process.rank) + ": " : "") + program_name(process);
}

std::string rank_or_pid(const Process& process) {
  return process.rank ? "rank " + std::to_string(*process.rank) : "pid " + std::to_string(process.pid);
}

std::string function_name(const Frame& frame) {
  if (!frame.function.empty()) return printable(frame.function);
  if (!frame.module.empty()) return printable(file_name(frame.module)) + "+" + hexadecimal(frame.offset);
  return frame.file.empty() ? hexadecimal(frame.address) + " (generated code)" : "?";
}

std::string printable(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const bool control = static_cast<unsigned char>(text[0]) < ' ' || text[0] == '\x7f';
    clean += !bytes ? "\xef\xbf\xbd" : control ? " " : text.substr(0, bytes);
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return clean;
}

std::string_view file_name(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

}  // namespace cistern::formats
