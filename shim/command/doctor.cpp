// `cistern doctor`, `path` and `options`: what the shared object itself can say.
#include <errno.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/library.hpp"

namespace cistern::command {
namespace {

// The shared object is a program as well.
[[noreturn]] void become_library(std::vector<std::string> arguments) {
  const std::string library = library_path();
  arguments.insert(arguments.begin(), library);
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  execv(library.c_str(), words.data());
  throw BadInput(library + ": " + std::strerror(errno));
}

struct Row {
  const char *variable, *standard, *help;
};
constexpr Row kRows[] = {
#define OPTION(type, name, variable, standard, accepted, help) {#variable, standard, help},
#include "shim/options.def"
};

}  // namespace

void add_doctor(CLI::App& app, Outcome& outcome) {
  CLI::App* const doctor = app.add_subcommand(
      "doctor", "say why a program's memory is or is not seen: doctor [--run] -- PROGRAM [ARGUMENT...]");
  const auto run = std::make_shared<bool>(false);
  doctor->add_flag("--run", *run, "run the program as well, and look at what happens");
  doctor->callback([&outcome, run] {
    std::vector<std::string> arguments{"--doctor"};
    if (*run) arguments.emplace_back("--run");
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), outcome.program.begin(), outcome.program.end());
    become_library(arguments);
  });
  app.add_subcommand("path", "print where the shared object to preload is")->callback([] {
    std::printf("%s\n", library_path().c_str());
  });
  app.add_subcommand("options", "print the options that programs under Cistern have")->callback([] {
    for (const Row& row : kRows) std::printf("%s=%s\n    %s\n", row.variable, row.standard, row.help);
  });
}

}  // namespace cistern::command
