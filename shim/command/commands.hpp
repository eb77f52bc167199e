// The subcommands of `cistern`, a file each. Each adds itself to the command line; when it is called it sets the exit
// code. Exit codes: 0 all right, 1 what was asked about is so (a leak, a growth), 2 bad input (BadInput, input.hpp).
#pragma once

namespace CLI {
class App;
}

namespace cistern::command {

struct Outcome {
  int exit_code = 0;
};

void add_export(CLI::App& app, Outcome& outcome);
void add_report(CLI::App& app, Outcome& outcome);

}  // namespace cistern::command
