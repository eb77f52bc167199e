// The reports of a run in short: the verdict in one sentence, a text of one screen, and tables of groups. The same as
// JSON, for a machine.
#pragma once
#include <string>

#include "stats/formats/groups.hpp"
#include "stats/formats/model.hpp"

namespace cistern::formats {

// For a terminal: control characters but the ends of lines become '?', so that nothing in a report steers it.
std::string plain_lines(std::string text);

// "5 blocks, 3.8 MiB lost at 3 sites"
std::string verdict(const Run& run);

struct SummaryOptions {
  std::size_t sites_max = 5;
  bool source = false;  // with the source lines of call sites, where their files are here
};
std::string summary(const Run& run, const SummaryOptions& options);
std::string summary_json(const Run& run);

std::string group_table(const std::vector<Group>& groups);
std::string group_json(const std::vector<Group>& groups);
std::string change_table(const std::vector<Change>& changes);
std::string change_json(const std::vector<Change>& changes);

}  // namespace cistern::formats
