// The data of a page as JSON: the members that visit_fields names, each stack and each frame that is used once, and for
// the rows that are left out their sums.
#pragma once
#include <string>
#include <unordered_set>

#include "stats/formats/comparison.hpp"
#include "stats/formats/model.hpp"

namespace cistern::formats {

// A row by its address in the Run.
using Rows = std::unordered_set<const void*>;

inline Count bytes_of(const LiveRow& row) { return row.bytes; }
inline Count bytes_of(const UseRow& row) { return row.peak_bytes; }
inline Count bytes_of(const CopyRow& row) { return row.bytes; }

// Calls with each row that may be left out, and the name of its list. A report's other lists are short.
template <class Call>
void visit_rows(const Report& report, Call&& call) {
  for (const LiveRow& row : report.leaks) call("leaks", row);
  for (const UseRow& row : report.at_peak) call("at_peak", row);
  for (const UseRow& row : report.in_loops) call("in_loops", row);
  for (const CopyRow& row : report.copy_sites) call("copy_sites", row);
}

// How much of a recording's moments a page has: the call sites that hold most at any of them, and every so many of the
// equal intervals; the peaks and the end always. No sites: no moments.
struct MomentLimits {
  std::size_t sites = 4096, step = 1;
  void lower() {
    constexpr std::size_t kSitesOfStep = 64, kStepMax = 16;
    if (sites > kSitesOfStep)
      sites /= 2;
    else if (step < kStepMax)
      step *= 2;
    else
      sites = 0;
  }
};

// `{"version", "processes", "hints", "reports", "stacks", "frames"}`: reports and their rows as in the contract, but
// `frames` of a row is a number of `stacks`, whose numbers are of `frames`. A member is absent if it is empty, false or
// not known. In place of rows that are not kept a report has their sums, `others`: `{"list", "kind", "class",
// "by_library", "suppressed", "rows", "blocks", "bytes"}`. `processes` counts those that are not in `reports`, too.
//
// A report of a recording has `recording`: `{"events", "file_bytes", "others", "missing", "sites", "moments"}`. A
// moment is `{"at_s", "peak_of", "uses"}`; `uses` are triples: a number of `sites`, blocks, bytes. Sites that are sums
// by kind have `others`; they stand for so many.
std::string page_data(const Run& run, const std::vector<const Report*>& reports, const Rows& kept, MomentLimits moments,
                      const std::vector<std::string>& hints);

// `{"version", "before", "after", "kinds", "growth", "sites", "others", "stacks", "frames"}`: the members of a
// Comparison, with its first `site_count` sites. `others` are the sums of the rest: `{"kind", "rows", "before",
// "after"}`.
std::string page_data(const Comparison& of, std::size_t site_count);

}  // namespace cistern::formats
