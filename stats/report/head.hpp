// What a report says of the process that wrote it, read back from the report's first bytes: whoever finds a file where
// a report is to go asks whether it is one, and whose.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace cistern {

struct ReportHead {
  int pid;
  bool used_gpu_memory;
};

// Whatever the command line: the head of a report ends before.
constexpr std::size_t kReportHeadBytes = 8192;

// `begin`: the first bytes of a file. Nothing: it is no report, as text or as JSON, of Cistern's.
std::optional<ReportHead> read_report_head(std::string_view begin);

}  // namespace cistern
