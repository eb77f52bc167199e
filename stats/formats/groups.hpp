// Live memory added up by one property of its call sites: its kind, the innermost module, source file or Python line,
// or the site itself. Two runs can be compared by it.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "stats/formats/model.hpp"

namespace cistern::formats {

enum class GroupBy { site, module, file, python, kind };
// Nothing: no such word.
std::optional<GroupBy> group_named(std::string_view word);

// "host  make < main": without lines and offsets, so that a site has the same name in the next build of the program. On
// a stack of Python code only that counts, as in reports.
std::string site_name(const Run& run, const std::string& kind, StackId of_site);

struct Group {
  std::string name;  // one line; of a site the functions of its stack, innermost first
  Count blocks = 0, bytes = 0, lost_blocks = 0, lost_bytes = 0;
};
// The largest first. Suppressed rows are left out.
std::vector<Group> groups(const Run& run, GroupBy by);

// --- Two runs
struct Change {
  Group before, after;                  // one of them without blocks: the group is new, or gone
  long double growth(bool lost) const;  // in bytes: exact
};
// The largest growth first; groups that did not change are left out.
std::vector<Change> changes(const Run& before, const Run& after, GroupBy by);

}  // namespace cistern::formats
