// A run: the process that the user started with a report's path, and what that started with the same path. Whose name
// the path is, and which file there is of a run before.
#pragma once
#include <sys/stat.h>

#include <string_view>

#include "shim/process/options.hpp"

namespace cistern {

// Programs that do none of the work themselves but start those that do: shells, timeout, env, make.
struct LauncherKind {
  bool launches;
  bool in_batches;  // the same program again and again: xargs, make
};
LauncherKind launcher_kind(std::string_view program);

// A shell that was given no script and no command reads what the user types: each of his commands is a run.
// `arguments`: each ended by a zero byte.
bool reads_commands(std::string_view program, std::string_view arguments);

// Cistern itself is among the libraries that the variable's value lists.
bool lists_cistern(std::string_view libraries);

// Noted at the start, where a report goes to a file that the whole run has.
void note_run(Getenv getenv);
void note_forked_from_run();
// At the end, before live memory is judged: a launcher that has started others leaves them the path.
void note_what_was_launched();

// The path is this process's where no process that used GPU memory has it: the user started this one, or launchers of
// the run did. Not a launcher that has started others, nor a forked child, but everybody with %p in the path.
bool is_main_of_run();
// It says where else the report went: of others nobody asks.
bool speaks_for_run();
// A file where the report is to go is from before the run. `writer`: the process that wrote it.
bool is_from_before_run(const struct stat& file, pid_t writer);

}  // namespace cistern
