// `cistern report`: what reports say, as text: a screen of it, all of it, or live memory by one property.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "stats/formats/groups.hpp"
#include "stats/formats/summary.hpp"

namespace cistern::command {
namespace {

struct Asked {
  std::vector<std::string> paths;
  bool full = false, source = false, json = false;
  std::string by;
  std::size_t sites_max = 5;
};

// The reports as the processes wrote them.
void print_full(const formats::Run& run) {
  for (const formats::Report& report : run.reports) {
    if (report.recorded)
      throw BadInput("the recording of pid " + std::to_string(report.cistern.pid) +
                     " has no full text: without --full there is a summary, and cistern html shows all");
    if (report.text.empty())
      throw BadInput("the report of pid " + std::to_string(report.cistern.pid) +
                     " has no full text: CISTERN_REPORT_FORMAT=both writes it, and so does cistern run");
  }
  bool first = true;
  for (const formats::Report& report : run.reports) {
    if (!std::exchange(first, false)) std::putchar('\n');
    std::fputs(formats::plain_lines(report.text).c_str(), stdout);
  }
}

void print_groups(const formats::Run& run, const Asked& asked) {
  const std::vector<formats::Group> groups = formats::groups(run, *formats::group_named(asked.by));
  std::fputs((asked.json ? formats::group_json(groups) : formats::group_table(groups)).c_str(), stdout);
}

void report(const Asked& asked) {
  const formats::Run run = read_reports(asked.paths);
  if (asked.full) {
    print_full(run);
  } else if (!asked.by.empty()) {
    print_groups(run, asked);
  } else if (asked.json) {
    std::fputs(formats::summary_json(run).c_str(), stdout);
  } else {
    std::fputs(formats::summary(run, {.sites_max = asked.sites_max, .source = asked.source}).c_str(), stdout);
  }
}

}  // namespace

void add_report(CLI::App& app, Outcome&) {
  CLI::App* const command = app.add_subcommand("report", "print what reports say");
  const auto asked = std::make_shared<Asked>();
  command->add_option("FILE", asked->paths, "JSON reports, recordings, or folders of them")->required();
  auto* const full = command->add_flag("--full", asked->full, "the text reports of all processes, whole");
  auto* const by = command->add_option("--by", asked->by, "live memory by site, module, file, python or kind")
                       ->check(CLI::IsMember({"site", "module", "file", "python", "kind"}));
  auto* const json = command->add_flag("--json", asked->json, "the same for a machine");
  command->add_flag("--source", asked->source, "print the source lines of call sites, where the files are here");
  command->add_option("-n,--sites", asked->sites_max, "how many leaks are listed (5)")->check(CLI::NonNegativeNumber);
  full->excludes(by)->excludes(json);
  command->callback([asked] { report(*asked); });
}

}  // namespace cistern::command
