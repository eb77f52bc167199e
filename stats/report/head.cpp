// See head.hpp.
#include "stats/report/head.hpp"

#include <charconv>

#include "stats/report/report.hpp"

namespace cistern {
namespace {

std::optional<int> number_at(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value > 0 ? std::optional(value) : std::nullopt;
}

// The command line comes behind all of it.
std::optional<ReportHead> of_json(std::string_view begin) {
  constexpr std::string_view kBegin = "{\n  \"cistern\": {\n    \"version\": \"", kPid = "\n    \"pid\": ";
  if (!begin.starts_with(kBegin)) return {};
  begin = begin.substr(0, begin.find("\n    \"command\": "));
  const std::size_t at = begin.find(kPid);
  const auto pid = at == begin.npos ? std::nullopt : number_at(begin.substr(at + kPid.size()));
  if (!pid) return {};
  return ReportHead{*pid, begin.find("\n    \"gpu_memory_used\": true") != begin.npos};
}

// The command line comes before the process id, and may look like one.
std::optional<ReportHead> of_text(std::string_view begin) {
  constexpr std::string_view kPid = "  pid ";
  const std::size_t end = begin.find('\n');
  if (!begin.starts_with("cistern ") || end == begin.npos) return {};
  const std::string_view first = begin.substr(0, end), rest = begin.substr(end + 1);
  const std::size_t at = first.rfind(kPid);
  if (at == first.npos || first.find("  wall ", at) == first.npos) return {};
  if (!rest.starts_with("VERDICT  ") && !rest.starts_with("LIVE     ")) return {};
  const auto pid = number_at(first.substr(at + kPid.size()));
  if (!pid) return {};
  return ReportHead{*pid, rest.substr(9, sizeof kNoGpuMemory - 1) != kNoGpuMemory};
}

}  // namespace

std::optional<ReportHead> read_report_head(std::string_view begin) {
  return begin.starts_with('{') ? of_json(begin) : of_text(begin);
}

}  // namespace cistern
