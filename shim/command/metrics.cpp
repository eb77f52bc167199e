// `cistern metrics`: the figures of running processes, for a collector.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/live_processes.hpp"
#include "shim/command/output.hpp"
#include "stats/formats/prometheus.hpp"
#include "stats/formats/read.hpp"

namespace cistern::command {
namespace {

struct Asked {
  std::string process, output;
  bool open_metrics = false;
  double seconds = 2;
};

// A process that does not answer has no report.
std::string measure(const std::vector<LiveProcess>& processes, const Asked& asked, bool& any) {
  const std::vector<std::optional<int>> answers = ask_all(processes, Request::refresh, asked.seconds);
  formats::RunReader reader;
  std::vector<std::optional<std::size_t>> reports;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    reports.emplace_back();
    if (answers[i] != 0) continue;
    try {
      reader.add(text_of_answer(processes[i], Request::refresh));
      reports.back() = reader.run().reports.size() - 1;
    } catch (const formats::BadReport& bad) {
      say(processes[i].shown() + ": its report " + bad.what());
    } catch (const BadInput& bad) {
      say(bad.line);
    }
  }
  std::vector<formats::Measured> measured;
  for (std::size_t i = 0; i < processes.size(); ++i)
    measured.push_back(
        {processes[i].pid, processes[i].program, reports[i] ? &reader.run().reports[*reports[i]] : nullptr});
  any = !reader.run().reports.empty();
  return metrics(measured,
                 asked.open_metrics ? formats::MetricsFormat::open_metrics : formats::MetricsFormat::prometheus);
}

void print_metrics(const Asked& asked, Outcome& outcome) {
  const std::vector<LiveProcess> processes =
      asked.process.empty() ? live_processes() : live_processes_named(asked.process);
  bool any = false;
  const std::string text = measure(processes, asked, any);
  if (asked.output.empty())
    std::fputs(text.c_str(), stdout);
  else
    write_file(asked.output, text);
  if (!any && !processes.empty()) outcome.exit_code = kNobodyAnswered;
}

}  // namespace

void add_metrics(CLI::App& app, Outcome& outcome) {
  CLI::App* const command = app.add_subcommand("metrics", "print the figures of running processes for Prometheus");
  const auto asked = std::make_shared<Asked>();
  command->add_option("PROCESS", asked->process, "a pid or a name; without it all processes that can be watched");
  command->add_option("-o,--output", asked->output, "a file, which appears whole, as for the textfile collector");
  command->add_flag("--openmetrics", asked->open_metrics, "in the format of OpenMetrics");
  command->add_option("--wait", asked->seconds, "so many seconds at most without an answer (2)")
      ->check(CLI::PositiveNumber);
  command->callback([asked, &outcome] { print_metrics(*asked, outcome); });
}

}  // namespace cistern::command
