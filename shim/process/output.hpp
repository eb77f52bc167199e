// Where a report goes: the path rules of CISTERN_REPORT.
#pragma once
#include <optional>

#include "pool/base/internal_memory.hpp"

namespace cistern {

struct Snapshot;

// At the start of a process that is asked for a report in a file. Whether the file can be made is asked now, while the
// user looks; no file is made or kept open. A descriptor that is named instead is noted. Nothing where it is not asked
// for.
void note_report_destination();
// As hold_standard_error(), of a descriptor that is named.
void hold_report_descriptor();

// Renders in the configured format to where CISTERN_REPORT says.
void write_report(Snapshot snapshot);
// The same for what is known before the report: the next report of this process takes its place. In files only.
void write_outline_of_report(Snapshot snapshot);

struct PathValues {
  int pid;
  std::string_view host;
  std::optional<int> rank;  // none: rank 0
};
// %p, %h, %r and %% replaced; other uses of % stay as they are.
String expand_report_path(std::string_view pattern, const PathValues& values);

// So for this process and rank: %p is `pid`. A relative path stays one.
String expanded_path(std::string_view pattern, int pid);

// The descriptor of this process that the path is a name of: /dev/stdout, /dev/fd/3, /proc/self/fd/3. Else -1.
int descriptor_named_by(std::string_view path);

}  // namespace cistern
