// `cistern top`: a live view of running processes, or of one.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/live_processes.hpp"
#include "shim/command/output.hpp"
#include "shim/command/terminal.hpp"
#include "stats/formats/read.hpp"
#include "stats/formats/top.hpp"

namespace cistern::command {
namespace {

struct Asked {
  std::string process;
  double interval = 1;
  bool once = false;
};

constexpr double kPatienceSeconds = 2;
constexpr std::size_t kColumns = 200, kRows = 60;  // without a terminal

// Nothing: it cannot be shown.
std::optional<formats::Run> report_of(const LiveProcess& process) {
  formats::RunReader reader;
  try {
    reader.add(text_of_answer(process, Request::refresh));
  } catch (const formats::BadReport&) {
    return std::nullopt;
  } catch (const BadInput&) {
    return std::nullopt;
  }
  return reader.take();
}

std::string all_processes(const formats::Screen& screen) {
  const std::vector<LiveProcess> processes = live_processes();
  if (processes.empty())
    return "no process of yours can be watched; start one by cistern run, or with CISTERN_LIVE=on\n";
  const std::vector<std::optional<int>> answers = ask_all(processes, Request::refresh, kPatienceSeconds);
  std::vector<std::optional<formats::Run>> runs;
  for (std::size_t i = 0; i < processes.size(); ++i)
    runs.push_back(answers[i] == 0 ? report_of(processes[i]) : std::nullopt);
  std::vector<formats::Watched> watched;
  for (std::size_t i = 0; i < processes.size(); ++i)
    watched.push_back({processes[i].pid, processes[i].program, runs[i] ? &runs[i]->reports[0] : nullptr});
  return process_table(watched, screen);
}

class OneProcess {
 public:
  explicit OneProcess(LiveProcess process) : process_(std::move(process)) {}
  // Nothing: it does not answer.
  std::optional<std::string> look(const formats::Screen& screen) {
    if (ask(process_, Request::refresh, kPatienceSeconds) != 0) return std::nullopt;
    std::optional<formats::Run> now = report_of(process_);
    if (!now) return std::nullopt;
    const double seconds = before_ ? now->reports[0].cistern.wall_s - before_->reports[0].cistern.wall_s : 0;
    std::string text = process_screen({process_.pid, process_.program, &now->reports[0]},
                                      {&*now, before_ ? &*before_ : nullptr, seconds}, screen);
    before_ = std::move(now);
    return text;
  }

 private:
  const LiveProcess process_;
  std::optional<formats::Run> before_;
};

// The exit code.
int watch(const Asked& asked) {
  const std::optional<LiveProcess> process =
      asked.process.empty() ? std::nullopt : std::optional(live_process_named(asked.process));
  OneProcess one(process ? *process : LiveProcess{});
  const auto look = [&](const formats::Screen& screen) {
    return process ? one.look(screen) : std::optional(all_processes(screen));
  };
  std::optional<std::string> text;
  if (asked.once || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
    text = look({kColumns, process ? kRows : SIZE_MAX});
    if (text) std::fputs(text->c_str(), stdout);
  } else {
    const Terminal terminal;
    do {
      text = look(terminal.size());
      if (text) terminal.show(*text);
    } while (text && terminal.wait(asked.interval));
  }
  if (text) return 0;
  say_not_answered(*process, kPatienceSeconds);
  return kNobodyAnswered;
}

}  // namespace

void add_top(CLI::App& app, Outcome& outcome) {
  CLI::App* const command = app.add_subcommand("top", "watch the memory of running processes; q leaves");
  const auto asked = std::make_shared<Asked>();
  command->add_option("PROCESS", asked->process, "a pid or a name: its kinds of memory, and call sites that grow");
  command->add_option("-d,--interval", asked->interval, "seconds between two looks (1)")
      ->check(CLI::Range(0.1, 3600.0));
  command->add_flag("--once", asked->once, "one look, printed; so without a terminal");
  command->callback([asked, &outcome] { outcome.exit_code = watch(*asked); });
}

}  // namespace cistern::command
