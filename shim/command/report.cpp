// `cistern report`: a report as text.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "stats/formats/summary.hpp"

namespace cistern::command {

void add_report(CLI::App& app, Outcome&) {
  CLI::App* const command = app.add_subcommand("report", "print a report");
  const auto paths = std::make_shared<std::vector<std::string>>();
  command->add_option("FILE", *paths, "JSON reports, or folders of them")->required();
  command->callback([paths] {
    const formats::Run run = read_reports(*paths);
    std::fputs(formats::summary(run, {}).c_str(), stdout);
  });
}

}  // namespace cistern::command
