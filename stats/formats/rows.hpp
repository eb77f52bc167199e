// Rows that a reader cannot tell apart, since they show the same frames, become one entry: of one process and of
// several.
#pragma once
#include "stats/formats/model.hpp"

namespace cistern::formats {

// The order in which leaks are listed: what is worst comes first.
enum class Standing { lost, possibly_lost, never_freed, reachable };
Standing standing_of(const std::string& kind, const std::string& leak_class);
inline Standing standing_of(const LiveRow& row) { return standing_of(row.kind, row.leak_class); }
const char* name_of(Standing standing);  // "lost"

// Live memory that no rule suppresses. Host memory without a call site is one more row.
template <class Use>
void for_each_live_row(const Report& report, Use use) {
  for (const LiveRow& row : report.leaks)
    if (!row.suppressed) use(row);
  if (!report.host_without_site || !report.host_without_site->blocks) return;
  LiveRow rest;
  rest.kind = "host", rest.leak_class = "unclassified", rest.object = "block";
  rest.blocks = report.host_without_site->blocks, rest.bytes = report.host_without_site->bytes;
  use(rest);
}

// A stack of Python code shows that, and native frames are only counted.
bool is_of_python(const Run& run, StackId stack);

struct Entry {
  LiveRow row;  // the first of them; blocks, bytes and times are those of all
  Count rows = 1, processes = 1;
};

struct EntriesOf {
  bool gpu = true, host = true, suppressed = false;
  std::size_t frames_max = 8;
};
// Sorted: the worst first, then the largest.
std::vector<Entry> entries(const Run& run, const EntriesOf& which);

// The lines of a stack as reports show them, each with its indentation and its end.
std::string frame_lines(const Run& run, StackId stack, std::size_t frames_max);

}  // namespace cistern::formats
