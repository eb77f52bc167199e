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
#include "shim/command/ranks.hpp"
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

std::string printable_name(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && !std::strchr("._+-", c)) c = '_';
  return name;
}

std::string folder_name(const std::string& program, pid_t pid) {
  const std::string name = printable_name(fs::path(program).filename());
  return "cistern-" + name + "-" + (in_ranks() ? printable_name(job_name()) : std::to_string(pid));
}

// Here, or where temporary files go. Ranks share theirs.
fs::path make_folder(const Given& given, const std::string& program, pid_t pid) {
  std::error_code error;
  const auto make = [&](const fs::path& folder) {
    return fs::create_directories(folder, error) || (!error && (in_ranks() || !given.folder.empty()));
  };
  const fs::path wanted = fs::absolute(given.folder.empty() ? folder_name(program, pid) : given.folder);
  if (make(wanted)) return wanted;
  const fs::path instead = fs::temp_directory_path() / folder_name(program, pid);
  std::fprintf(stderr, "cistern: %s: %s; the reports go to %s\n", wanted.c_str(),
               error ? error.message().c_str() : "it is there already", instead.c_str());
  if (make(instead)) return instead;
  std::fprintf(stderr, "cistern: %s: %s; there will be no reports\n", instead.c_str(), error.message().c_str());
  return {};
}

void print_verdict(const fs::path& folder, const Ended& ended) {
  const std::string shown = fs::path(folder).lexically_proximate(fs::current_path());
  std::string verdict;
  try {
    const formats::Run run = read_reports({folder});
    verdict = formats::verdict(run);
    if (std::FILE* const file = std::fopen((folder / "summary.txt").c_str(), "we")) {
      std::fputs(formats::summary(run, {}).c_str(), file);
      std::fclose(file);
    }
  } catch (const BadInput&) {
    std::error_code error;
    fs::remove(folder, error);
    std::fprintf(stderr, "cistern: no report: %s\n",
                 WIFSIGNALED(ended.status) ? "the program was killed before it could write one"
                                           : "cistern doctor -- PROGRAM says why");
    return;
  }
  std::fprintf(stderr, "cistern: %s\ncistern: next: cistern html %s\n", verdict.c_str(), shown.c_str());
}

int run(const Given& given, const std::vector<std::string>& command) {
  const std::string library = library_path();
  const std::string loader = foreign_loader(file_of(command[0]));
  if (!loader.empty())
    std::fprintf(stderr, "cistern: %s runs with %s, which is not glibc's: libcistern.so is not preloaded into it\n",
                 command[0].c_str(), loader.c_str());
  const char* const report = std::getenv("CISTERN_REPORT");
  const bool has_folder = !given.has("CISTERN_REPORT") && !(report && *report) && loader.empty();
  fs::path folder;
  Launch launch{command, [&](pid_t pid) {
                  std::vector<std::string> entries;
                  for (const auto& [name, value] : given.settings) entries.push_back(name + "=" + value);
                  if (has_folder && !(folder = make_folder(given, command[0], pid)).empty()) {
                    const char* const name = in_ranks() ? "rank-%r-%h-%p.json" : "%p.json";
                    entries.push_back("CISTERN_REPORT=" + (folder / name).native());
                    entries.push_back("CISTERN_REPORT_FORMAT=both");
                    const char* const recording = in_ranks() ? "rank-%r-%h-%p.rec" : "%p.rec";
                    if (given.records) entries.push_back("CISTERN_RECORD=" + (folder / recording).native());
                  }
                  const char* const list = std::getenv("LD_PRELOAD");
                  const std::string before = list ? list : "";
                  entries.push_back("LD_PRELOAD=" + (loader.empty() ? with_library(library, before)
                                                                    : without_library(library, before)));
                  return entries;
                }};
  const Ended ended = cistern::command::launch(launch);
  if (ended.exec_error) {
    std::error_code error;
    if (!folder.empty()) fs::remove(folder, error);
    std::fprintf(stderr, "cistern: %s: %s\n", command[0].c_str(),
                 ended.exec_error == ENOENT ? "not found" : std::strerror(ended.exec_error));
  } else if (!folder.empty() && !in_ranks()) {
    print_verdict(folder, ended);
  } else if (!folder.empty() && is_first_rank()) {
    std::fprintf(stderr, "cistern: the reports of all ranks are in %s; when all have ended: cistern report %s\n",
                 folder.c_str(), folder.c_str());
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
