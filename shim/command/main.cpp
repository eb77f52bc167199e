// `cistern`: runs programs under the shared object, and shows, compares and converts their reports.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"

namespace {

// Where the words of a program begin, which are none of ours: behind "--", or at the first word that is neither a flag
// of `run` or `doctor` nor its value. All their flags but that for help have one.
char** program_of(char** word, char** end) {
  const std::string_view command = word != end ? *word : "";
  if (command != "run" && command != "doctor") return end;
  for (++word; word != end; ++word) {
    const std::string_view text = *word;
    if (text == "--" || !text.starts_with('-')) return word;
    const bool has_value = text.find('=') != text.npos || (text.starts_with("-o") && text.size() > 2);
    if (!has_value && text != "-h" && text != "--help" && word + 1 != end) ++word;
  }
  return end;
}

}  // namespace

int main(int count, char** arguments) {
  using namespace cistern::command;
  constexpr int kBadInput = 2;
  CLI::App app("Runs programs under Cistern, and shows what their memory did.", "cistern");
  app.set_version_flag("--version", "cistern " CISTERN_VERSION);
  app.require_subcommand(1);
  Outcome outcome;
  for (const auto add : {add_run, add_report, add_html}) add(app, outcome);
  try {
    char** const end = arguments + count;
    char** const program = program_of(arguments + std::min(count, 1), end);
    if (program != end) outcome.program.assign(program + (std::string_view(*program) == "--"), end);
    app.parse(static_cast<int>(program - arguments), arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) ? kBadInput : 0;
  } catch (const BadInput& bad) {
    std::fprintf(stderr, "cistern: %s\n", bad.what());
    return kBadInput;
  }
  return outcome.exit_code;
}
