// A Run as a table of its samples: one row for each, with the same columns in every format that has tables.
#pragma once
#include <functional>

#include "stats/formats/samples.hpp"

namespace cistern::formats {

// Texts are UTF-8 without control characters; an empty one is not known.
struct TableRow {
  std::string program, kind, leak_class, object, call, owner, file;
  std::string stack;  // the functions, outermost first, with `;` between them
  Count pid = 0;
  std::optional<Count> rank, line;
  bool suppressed = false;
  Amount live, lost, peak;
  std::optional<Seconds> start_unix_s, first_s, last_s;
};
template <class Visitor>
void visit_columns(Visitor& visit, const TableRow& of) {
  visit("program", of.program), visit("pid", of.pid), visit("rank", of.rank);
  visit("start_unix_s", of.start_unix_s), visit("kind", of.kind), visit("class", of.leak_class);
  visit("object", of.object), visit("call", of.call), visit("owner", of.owner);
  visit("suppressed", of.suppressed), visit("live_blocks", of.live.blocks), visit("live_bytes", of.live.bytes);
  visit("lost_blocks", of.lost.blocks), visit("lost_bytes", of.lost.bytes), visit("peak_blocks", of.peak.blocks);
  visit("peak_bytes", of.peak.bytes), visit("first_s", of.first_s), visit("last_s", of.last_s);
  visit("file", of.file), visit("line", of.line), visit("stack", of.stack);
}

void for_each_table_row(const Run& run, const std::function<void(const TableRow&)>& use);

}  // namespace cistern::formats
