// Running processes that have a live page (shim/process/live_page.hpp), and requests to them. Also those in containers:
// their pages are looked for where the process itself sees /dev/shm.
#pragma once
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shim/process/live_page.hpp"
#include "stats/formats/model.hpp"

namespace cistern::command {

struct LiveProcess {
  pid_t pid;            // as this process sees it
  std::string program;  // its short name
  std::string page;     // the path of the page, from which those of the reports are made
  std::shared_ptr<LivePage> memory;

  bool answers_while_idle() const { return memory->has_thread.load() != 0; }
  // "pid 4711 (train.py)"
  std::string shown() const { return "pid " + std::to_string(pid) + " (" + program + ")"; }
};

// In the order of their pids: those of this user, or of all users where this is root.
std::vector<LiveProcess> live_processes();
// All with this pid or name. Throws BadInput where there is none.
std::vector<LiveProcess> live_processes_named(const std::string& pid_or_name);
// The one of them. Throws BadInput where there are several.
LiveProcess live_process_named(const std::string& pid_or_name);

// Asks, and waits so long for the answer. Its error number, 0 for success; nothing: the process did not answer.
std::optional<int> ask(const LiveProcess& process, Request request, double seconds);
// All at the same time. Where many answer, the last ones wait for a processor: so long without any answer is the end.
std::vector<std::optional<int>> ask_all(const std::vector<LiveProcess>& processes, Request request, double seconds);

// The report that the process wrote for Request::refresh or Request::snapshot. Throws BadInput.
std::string text_of_answer(const LiveProcess& process, Request request);

// Says why there was no answer, and what to do: exit code 3.
constexpr int kNobodyAnswered = 3;
void say_not_answered(const LiveProcess& process, double seconds);

}  // namespace cistern::command
