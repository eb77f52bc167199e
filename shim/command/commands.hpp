// The subcommands of `cistern`, a file each. Each adds itself to the command line; when it is called it sets the exit
// code. Exit codes: 0 all right, 1 what was asked about is so (a leak, a growth), 2 bad input (BadInput, input.hpp), 3
// a running process did not answer.
//
// Room: the command `cistern`, of which nothing is in the libraries.
// May include: shim/process, stats, stats/formats.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace cistern::command {

struct Outcome {
  int exit_code = 0;
  std::vector<std::string> program;  // the command line that `run` and `doctor` were given
};

void add_completion(CLI::App& app, Outcome& outcome);
void add_diff(CLI::App& app, Outcome& outcome);
void add_doctor(CLI::App& app, Outcome& outcome);
void add_merge(CLI::App& app, Outcome& outcome);
void add_metrics(CLI::App& app, Outcome& outcome);
void add_requests(CLI::App& app, Outcome& outcome);
void add_top(CLI::App& app, Outcome& outcome);
void add_html(CLI::App& app, Outcome& outcome);
void add_export(CLI::App& app, Outcome& outcome);
void add_report(CLI::App& app, Outcome& outcome);
void add_run(CLI::App& app, Outcome& outcome);

}  // namespace cistern::command
