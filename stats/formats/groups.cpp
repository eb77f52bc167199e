// See groups.hpp.
#include "stats/formats/groups.hpp"

#include <algorithm>
#include <map>

#include "stats/formats/rows.hpp"

namespace cistern::formats {
namespace {

constexpr std::size_t kFramesOfName = 6;

std::string base(const std::string& path) { return path.substr(path.rfind('/') + 1); }

template <class Value>
std::string first_known(const Run& run, const LiveRow& row, const char* none, Value value) {
  for (const FrameId id : run.stacks[row.frames])
    if (std::string text = value(run.frames[id]); !text.empty()) return text;
  return none;
}

std::string name_of_group(const Run& run, const LiveRow& row, GroupBy by) {
  switch (by) {
    case GroupBy::kind:
      return row.kind;
    case GroupBy::module:
      return first_known(run, row, "no module", [](const Frame& frame) { return base(frame.module); });
    case GroupBy::file:
      return first_known(run, row, "no source file", [](const Frame& frame) { return frame.file; });
    case GroupBy::python:
      return first_known(run, row, "no Python code", [](const Frame& frame) {
        return frame.python ? frame.file + ":" + std::to_string(frame.line) + " " + frame.function : std::string();
      });
    case GroupBy::site:
      break;
  }
  return site_name(run, row.kind, row.frames);
}

void add(Group& group, const LiveRow& row) {
  group.blocks += row.blocks, group.bytes += row.bytes;
  if (standing_of(row) != Standing::lost) return;
  group.lost_blocks += row.blocks, group.lost_bytes += row.bytes;
}

std::map<std::string, Group> by_name(const Run& run, GroupBy by) {
  std::map<std::string, Group> all;
  for (const Report& report : run.reports)
    for_each_live_row(report, [&](const LiveRow& row) { add(all[name_of_group(run, row, by)], row); });
  for (auto& [name, group] : all) group.name = name;
  return all;
}

}  // namespace

std::string site_name(const Run& run, const std::string& kind, StackId of_site) {
  const Stack& stack = run.stacks[of_site];
  const bool any_python = is_of_python(run, of_site);
  std::string name;
  std::size_t shown = 0;
  for (const FrameId id : stack) {
    const Frame& frame = run.frames[id];
    if (any_python && !frame.python) continue;
    if (shown++ == kFramesOfName) break;
    if (!name.empty()) name += " < ";
    name += !frame.function.empty() ? frame.function : !frame.module.empty() ? base(frame.module) : "generated code";
    if (frame.function == "main") break;
  }
  return kind + "  " + (name.empty() ? "without a call site" : name);
}

std::optional<GroupBy> group_named(std::string_view word) {
  constexpr std::pair<std::string_view, GroupBy> kWords[] = {{"site", GroupBy::site},
                                                             {"module", GroupBy::module},
                                                             {"file", GroupBy::file},
                                                             {"python", GroupBy::python},
                                                             {"kind", GroupBy::kind}};
  for (const auto& [name, by] : kWords)
    if (name == word) return by;
  return {};
}

std::vector<Group> groups(const Run& run, GroupBy by) {
  std::vector<Group> all;
  for (auto& [name, group] : by_name(run, by)) all.push_back(std::move(group));
  std::ranges::stable_sort(all, [](const Group& one, const Group& other) { return one.bytes > other.bytes; });
  return all;
}

long double Change::growth(bool lost) const {
  const auto bytes = [lost](const Group& group) {
    return static_cast<long double>(lost ? group.lost_bytes : group.bytes);
  };
  return bytes(after) - bytes(before);
}

std::vector<Change> changes(const Run& before, const Run& after, GroupBy by) {
  std::map<std::string, Group> old = by_name(before, by), now = by_name(after, by);
  std::vector<Change> all;
  for (const auto& [name, group] : now) {
    const auto found = old.find(name);
    const Group was = found == old.end() ? Group{name} : found->second;
    if (was.bytes != group.bytes || was.blocks != group.blocks || was.lost_bytes != group.lost_bytes)
      all.push_back({was, group});
  }
  for (const auto& [name, group] : old)
    if (!now.contains(name)) all.push_back({group, Group{name}});
  std::ranges::stable_sort(
      all, [](const Change& one, const Change& other) { return one.growth(false) > other.growth(false); });
  return all;
}

}  // namespace cistern::formats
