// `cistern merge`: processes, children and ranks in one summary, read one after another. Summaries may be merged again.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/output.hpp"
#include "stats/formats/merged.hpp"
#include "stats/formats/read.hpp"

namespace cistern::command {
namespace {

struct Asked {
  std::vector<std::string> paths;
  std::string out;
  std::size_t sites_max = 5;
};

formats::Merged read_one(const std::string& path) {
  if (is_recording(path)) return formats::merged(read_reports({path}));
  const std::string text = text_of(path);
  try {
    if (formats::looks_merged(text)) return formats::read_merged(text);
    formats::RunReader reader;
    reader.add(text);
    return formats::merged(reader.run());
  } catch (const formats::BadReport& bad) {
    throw BadInput(path + " " + bad.what());
  }
}

void merge(const Asked& asked) {
  formats::Merged all;
  for_each_report(asked.paths, [&](const std::string& file) { formats::merge(all, read_one(file)); });
  if (!asked.out.empty()) write_file(asked.out, formats::merged_json(all));
  std::fputs(formats::merged_text(all, asked.sites_max).c_str(), stdout);
}

}  // namespace

void add_merge(CLI::App& app, Outcome&) {
  CLI::App* const command = app.add_subcommand("merge", "sum up any number of processes: sums, extremes and outliers");
  const auto asked = std::make_shared<Asked>();
  command->add_option("FILE", asked->paths, "JSON reports, merged reports, recordings, or folders of them")->required();
  command->add_option("-o,--output", asked->out, "a file for the merged report, which can be merged again");
  command->add_option("-n,--sites", asked->sites_max, "how many call sites are listed (5)")
      ->check(CLI::NonNegativeNumber);
  command->callback([asked] { merge(*asked); });
}

}  // namespace cistern::command
