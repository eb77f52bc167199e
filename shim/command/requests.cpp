// `cistern snapshot`, `trim` and `wake`: one request to a running process.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/live_processes.hpp"
#include "shim/command/output.hpp"
#include "shim/command/run_folder.hpp"
#include "stats/format.hpp"
#include "stats/formats/read.hpp"
#include "stats/formats/summary.hpp"

namespace cistern::command {
namespace {

struct Asked {
  std::string process, output;
  double seconds = 10;
};

// The answer's error number; nothing: there was none.
std::optional<int> answer(const LiveProcess& process, Request request, const Asked& asked, Outcome& outcome) {
  const std::optional<int> failure = ask(process, request, asked.seconds);
  if (failure) return failure;
  say_not_answered(process, asked.seconds);
  outcome.exit_code = kNobodyAnswered;
  return failure;
}

std::string name_of_snapshot(const LiveProcess& process) {
  return "cistern-" + printable_name(process.program) + "-" + std::to_string(process.pid) + ".json";
}

void take_snapshot(const Asked& asked, Outcome& outcome) {
  const LiveProcess process = live_process_named(asked.process);
  const std::optional<int> failure = answer(process, Request::snapshot, asked, outcome);
  if (!failure) return;
  if (*failure) throw BadInput(process.shown() + " could not write its report: " + std::strerror(*failure));
  const std::string text = text_of_answer(process, Request::snapshot);
  formats::RunReader reader;
  try {
    reader.add(text);
  } catch (const formats::BadReport& bad) {
    throw BadInput(process.shown() + ": its report " + bad.what());
  }
  const std::string path = asked.output.empty() ? name_of_snapshot(process) : asked.output;
  write_file(path, text);
  say(formats::verdict(reader.run()));
  say("next: cistern report " + path);
}

void trim(const Asked& asked, Outcome& outcome) {
  const LiveProcess process = live_process_named(asked.process);
  if (!answer(process, Request::trim, asked, outcome)) return;
  const String bytes = human_bytes(process.memory->returned_bytes.load());
  say(process.shown() + " gave back " + std::string(bytes.data(), bytes.size()));
}

void wake(const Asked& asked, Outcome& outcome) {
  const LiveProcess process = live_process_named(asked.process);
  if (const std::optional<int> failure = answer(process, Request::wake, asked, outcome))
    say(process.shown() + (*failure == EALREADY ? " was awake already" : " notes call sites from now on"));
}

}  // namespace

void add_requests(CLI::App& app, Outcome& outcome) {
  const auto add_subcommand_for = [&](const char* name, const char* description, void (*does)(const Asked&, Outcome&)) {
    CLI::App* const command = app.add_subcommand(name, description);
    const auto asked = std::make_shared<Asked>();
    command->add_option("PROCESS", asked->process, "its pid, or its name")->required();
    command->add_option("--wait", asked->seconds, "so many seconds at most (10)")->check(CLI::PositiveNumber);
    command->callback([asked, does, &outcome] { does(*asked, outcome); });
    return std::pair(command, asked);
  };
  const auto [snapshot, asked] =
      add_subcommand_for("snapshot", "have a running process write a report, and go on", take_snapshot);
  snapshot->add_option("-o,--output", asked->output, "the file; without it cistern-PROGRAM-PID.json, here");
  add_subcommand_for("trim", "have a running process give back what its pools keep without need", trim);
  add_subcommand_for("wake", "have a running process note call sites from now on (CISTERN_WAKE=command)", wake);
}

}  // namespace cistern::command
