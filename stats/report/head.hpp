// The facts about the writer of a report, read back from the report's first bytes. A process that finds a file at its
// report's path asks whether the file is a report, and which process wrote it.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace cistern {

struct ReportHead {
  int pid;
  bool used_gpu_memory;
};

// The head of a report ends before, for every command line.
constexpr std::size_t kReportHeadBytes = 8192;

// `begin`: the first bytes of a file. Nothing: it is no report, as text or as JSON, of Cistern's.
std::optional<ReportHead> read_report_head(std::string_view begin);

}  // namespace cistern
