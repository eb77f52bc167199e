// A program is started, and everything that happens to this process happens to it: signals, job control, the terminal,
// the exit code. It stays in this process's group and session, with its standard input and its terminal.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace cistern::command {

struct Launch {
  std::vector<std::string> command;
  // Called in this process once the program's id is known, before the program starts; the child then has these entries
  // of the environment, "NAME=value"; "NAME=" takes one away.
  std::function<std::vector<std::string>(pid_t)> environment;
};

struct Ended {
  int status = 0;      // as waitpid gives it
  int exec_error = 0;  // errno: the program could not be started
  pid_t pid = 0;
};

// Throws BadInput where no process can be made. Signals stay blocked: none comes between the program's end and that of
// this process.
Ended launch(const Launch& launch);

// This process becomes the program, without anything of the above. Does not return unless that fails: the errno.
int become(const std::vector<std::string>& command, const std::vector<std::string>& environment);

// Ends this process as the program ended: the same exit code, or the same signal.
[[noreturn]] void end_as(const Ended& ended);

}  // namespace cistern::command
