// See table.hpp.
#include "stats/formats/table.hpp"

#include <algorithm>

namespace cistern::formats {
namespace {

std::string stack_of(const Samples& samples, const Sample& sample) {
  std::string stack;
  for (std::size_t at = sample.site_frames; at-- > 0;) {
    std::string name = samples.frames[sample.stack[at]].function;
    std::ranges::replace(name, ';', ':');
    stack += (stack.empty() ? "" : ";") + name;
  }
  return stack;
}

TableRow row_of(const Samples& samples, const Sample& sample) {
  const Process& process = sample.report->cistern;
  const Frame& innermost = samples.frames[sample.stack.front()];
  TableRow row;
  row.program = program_name(process), row.pid = process.pid, row.rank = process.rank;
  row.start_unix_s = process.start_unix_s, row.kind = printable(sample.kind);
  if (const LiveRow* const of = sample.row) {
    row.leak_class = printable(of->leak_class), row.object = printable(of->object), row.call = printable(of->api);
    row.owner = printable(of->owner), row.suppressed = of->suppressed;
    row.first_s = of->first_s, row.last_s = of->last_s;
  }
  row.live = sample.live, row.lost = sample.lost, row.peak = sample.peak;
  row.file = innermost.file.empty() ? innermost.module : innermost.file;
  if (innermost.line) row.line = innermost.line;
  row.stack = stack_of(samples, sample);
  return row;
}

}  // namespace

void for_each_table_row(const Run& run, const std::function<void(const TableRow&)>& use) {
  const Samples samples = samples_of(run);
  for (const Sample& sample : samples.list) use(row_of(samples, sample));
}

}  // namespace cistern::formats
