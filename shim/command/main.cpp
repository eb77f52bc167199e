// `cistern`: runs programs under the shared object, and shows, compares and converts their reports.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"

int main(int count, char** arguments) {
  using namespace cistern::command;
  constexpr int kBadInput = 2;
  CLI::App app("Runs programs under Cistern, and shows what their memory did.", "cistern");
  app.set_version_flag("--version", "cistern " CISTERN_VERSION);
  app.require_subcommand(1);
  Outcome outcome;
  for (const auto add : {add_export, add_report}) add(app, outcome);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) ? kBadInput : 0;
  } catch (const BadInput& bad) {
    std::fprintf(stderr, "cistern: %s\n", bad.what());
    return kBadInput;
  }
  return outcome.exit_code;
}
