// `cistern run`: a program under the shared object, with a folder for the reports of all its processes. While it runs
// nothing is printed; at its end the verdict and the next command go to stderr.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/launch.hpp"
#include "shim/command/library.hpp"
#include "shim/command/output.hpp"
#include "shim/command/ranks.hpp"
#include "shim/command/run_folder.hpp"
#include "stats/formats/summary.hpp"

namespace cistern::command {
namespace {

namespace fs = std::filesystem;

struct Flag {
  const char* name;  // the environment variable
  const char* accepted;
  const char* help;
};
constexpr Flag kFlags[] = {
#define OPTION(type, name, variable, standard, accepted, help) {#variable, accepted, help},
#include "shim/options.def"
};

// "--report-format" of CISTERN_REPORT_FORMAT; empty for CISTERN itself.
std::string flag_of(std::string variable) {
  constexpr std::string_view kPrefix = "CISTERN_";
  if (!variable.starts_with(kPrefix)) return {};
  variable.erase(0, kPrefix.size());
  for (char& c : variable) c = c == '_' ? '-' : static_cast<char>(std::tolower(c));
  return "--" + variable;
}

// "--record=64MiB", and not a path.
bool is_size(const std::string& text) { return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])); }

struct Given {
  std::vector<std::pair<std::string, std::string>> settings;  // environment variables
  std::vector<std::string> named;                             // NAME=VALUE of --set
  std::string folder;
  bool records = false;  // into the folder
  bool has(std::string_view variable) const {
    for (const auto& [name, value] : settings)
      if (name == variable) return true;
    return false;
  }
};

// Beside the reports, and on stderr. A file that cannot be written is no fault of the program.
void print_verdict(const RunFolder& folder, const Ended& ended) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  const std::string shown = error ? folder.path : folder.path.lexically_proximate(here);
  try {
    const formats::Run run = read_reports({folder.path});
    if (std::FILE* const file = std::fopen((folder.path / "summary.txt").c_str(), "we")) {
      std::fputs(formats::summary(run, {}).c_str(), file);
      std::fclose(file);
    }
    say(formats::verdict(run));
    say("next: cistern html " + shown);
  } catch (const std::exception&) {
    remove_unused(folder);
    say(std::string("no report: ") + (WIFSIGNALED(ended.status) ? "the program was killed before it could write one"
                                                                : "cistern doctor -- PROGRAM says why"));
  }
}

void say_not_started(const std::string& program, int error) {
  say(program + ": " + (error == ENOENT ? "not found" : std::strerror(error)));
}

bool wants_folder(const Given& given) {
  const char* const report = std::getenv("CISTERN_REPORT");
  if (!given.folder.empty() && given.has("CISTERN_REPORT"))
    throw BadInput("-o and --report: reports go to one place only");
  return !given.folder.empty() || (!given.has("CISTERN_REPORT") && !(report && *report));
}

int run(const Given& given, const std::vector<std::string>& command) {
  const std::string library = library_path();
  const bool is_watchable = !given.has("CISTERN_LIVE") && !std::getenv("CISTERN_LIVE");
  const std::string loader = foreign_loader(file_of(command[0]));
  if (!loader.empty())
    say(command[0] + " runs with " + loader + ", which is not glibc's: libcistern.so is not preloaded into it");
  const bool has_folder = wants_folder(given) && loader.empty();
  RunFolder folder;
  const auto environment = [&](pid_t pid) {
    std::vector<std::string> entries;
    for (const auto& [name, value] : given.settings) entries.emplace_back(name).append("=").append(value);
    if (has_folder) folder = make_run_folder(given.folder, command[0], pid);
    if (!folder.path.empty()) {
      entries.push_back("CISTERN_REPORT=" + report_path_in(folder));
      entries.push_back("CISTERN_REPORT_FORMAT=both");
      if (given.records) entries.push_back("CISTERN_RECORD=" + recording_path_in(folder));
    }
    if (is_watchable) entries.push_back("CISTERN_LIVE=on");
    const char* const list = std::getenv("LD_PRELOAD");
    const std::string before = list ? list : "";
    entries.push_back("LD_PRELOAD=" +
                      (loader.empty() ? with_library(library, before) : without_library(library, before)));
    return entries;
  };
  Ended ended;
  try {
    ended = launch({command, environment});
  } catch (const BadInput& bad) {
    say(bad.line + ": the program runs without a verdict at its end");
    const int error = become(command, environment(getpid()));
    say_not_started(command[0], error);
    return error == ENOENT ? 127 : 126;
  }
  if (ended.exec_error) {
    remove_unused(folder);
    say_not_started(command[0], ended.exec_error);
  } else if (!folder.path.empty() && !in_ranks()) {
    print_verdict(folder, ended);
  } else if (!folder.path.empty() && is_first_rank()) {
    say("the reports of all ranks are in " + folder.path.native() + "; when all have ended: cistern report " +
        folder.path.native());
  }
  end_as(ended);
}

}  // namespace

void add_run(CLI::App& app, Outcome& outcome) {
  CLI::App* const command =
      app.add_subcommand("run", "run a program under Cistern: run [OPTION...] -- PROGRAM [ARGUMENT...]");
  const auto given = std::make_shared<Given>();
  command->add_option("-o,--output", given->folder, "the folder for the reports; without it cistern-PROGRAM-PID, here");
  for (const Flag& flag : kFlags) {
    const std::string name = flag_of(flag.name);
    if (name.empty() || name == "--record") continue;
    const std::string variable = flag.name;
    command->add_option_function<std::string>(
        name, [given, variable](const std::string& value) { given->settings.emplace_back(variable, value); },
        flag.help);
  }
  command
      ->add_option_function<std::string>(
          "--record",
          [given](const std::string& value) {
            given->records = value.empty() || is_size(value);
            if (!value.empty())
              given->settings.emplace_back(given->records ? "CISTERN_RECORD_MAX" : "CISTERN_RECORD", value);
          },
          "record every allocation, free and copy: into the folder, at most =SIZE, or to =PATH")
      ->expected(0, 1)
      ->default_str("");
  command->add_option("--set", given->named, "NAME=VALUE: CISTERN_NAME")->expected(1);
  command->callback([given, &outcome] {
    for (const std::string& entry : given->named) {
      const std::size_t sign = entry.find('=');
      if (sign == entry.npos) throw BadInput("--set needs NAME=VALUE, not '" + entry + "'");
      std::string name = entry.substr(0, sign);
      for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
      given->settings.emplace_back("CISTERN_" + name, entry.substr(sign + 1));
    }
    if (outcome.program.empty()) throw BadInput("no program given: cistern run [OPTION...] -- PROGRAM [ARGUMENT...]");
    if (given->has("CISTERN_REPORT_FORMAT") && !given->has("CISTERN_REPORT") && !std::getenv("CISTERN_REPORT"))
      throw BadInput("--report-format needs --report: a folder of reports has JSON");
    if (given->records && (given->has("CISTERN_REPORT") || std::getenv("CISTERN_REPORT")))
      throw BadInput("--record needs a path beside --report: --record=PATH");
    outcome.exit_code = run(*given, outcome.program);
  });
}

}  // namespace cistern::command
