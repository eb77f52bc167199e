// `cistern`: runs programs under the shared object, and shows, compares and converts their reports.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/output.hpp"

namespace {

// Where the words of a program begin, which are none of ours: behind "--", or at the first word that is neither a flag
// of `run` or `doctor` nor its value. All their flags but `--help` and `--run` have one; that of `--record` stands
// behind a "=".
char** program_of(char** word, char** end) {
  const std::string_view command = word != end ? *word : "";
  if (command != "run" && command != "doctor") return end;
  for (++word; word != end; ++word) {
    const std::string_view text = *word;
    if (text == "--" || !text.starts_with('-')) return word;
    const bool has_value = text.find('=') != text.npos || (text.starts_with("-o") && text.size() > 2);
    const bool takes_one = !has_value && text != "-h" && text != "--help" && text != "--run" && text != "--record";
    if (takes_one && word + 1 != end && std::string_view(word[1]) != "--") ++word;
  }
  return end;
}

using namespace cistern::command;

constexpr int kBadInput = 2;

// The exit code. Throws BadInput, and std::bad_alloc.
int answer(int count, char** arguments) {
  CLI::App app("Runs programs under Cistern, and shows what their memory did.", "cistern");
  app.set_version_flag("--version", "cistern " CISTERN_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return "cistern: " + std::string(error.what()) + "; see cistern help\n";
  });
  Outcome outcome;
  std::string asked_about, whole;
  CLI::App* const help = app.add_subcommand("help", "print what a command takes");
  help->add_option("COMMAND", asked_about, "its name");
  const auto command_named = [&](const std::string& name) {
    const auto named = app.get_subcommands([&](const CLI::App* one) { return one->get_name() == name; });
    if (named.empty()) throw BadInput("no such command: " + name + "; see cistern help");
    return named[0];
  };
  help->callback(
      [&] { std::fputs((asked_about.empty() ? whole : command_named(asked_about)->help("cistern")).c_str(), stdout); });
  for (const auto add : {add_run, add_report, add_html, add_diff, add_merge, add_export, add_top, add_requests,
                         add_metrics, add_doctor, add_completion})
    add(app, outcome);
  whole = app.help();
  try {
    if (count > 1 && arguments[1][0] != '-') command_named(arguments[1]);
    char** const end = arguments + count;
    char** const program = program_of(arguments + std::min(count, 1), end);
    if (program != end) outcome.program.assign(program + (std::string_view(*program) == "--"), end);
    app.parse(static_cast<int>(program - arguments), arguments);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error)) return kBadInput;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    throw BadInput(std::string("standard output: ") + std::strerror(errno));
  return outcome.exit_code;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return answer(count, arguments);
  } catch (const BadInput& bad) {
    say(bad.line);
  } catch (const std::exception& error) {
    say(std::string(error.what()) + ": the input may be too large");
  }
  return kBadInput;
}
