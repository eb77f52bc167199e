// Where a report goes: the path rules of CISTERN_REPORT.
#pragma once
#include <optional>

#include "pool/base/internal_memory.hpp"

namespace cistern {

struct Snapshot;

// Renders in the configured format to where CISTERN_REPORT says.
void write_report(const Snapshot& snapshot);

struct PathValues {
  int pid;
  std::string_view host;
  std::optional<int> rank;  // none: rank 0
};
// %p, %h, %r and %% replaced; other uses of % stay as they are.
String expand_report_path(std::string_view pattern, const PathValues& values);

// "run.json" -> "run.1234.json", "run" -> "run.1234"; the n-th try for n > 1: "run.1234-2.json".
String path_with_pid(std::string_view path, int pid, int attempt);

}  // namespace cistern
