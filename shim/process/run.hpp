// A run: the process that the user started with a report's path, and the processes that this one started with the same
// path. Finds the process that owns the path, and a file that an earlier run left.
#pragma once
#include <sys/stat.h>

#include <optional>
#include <string_view>

#include "shim/process/options.hpp"

namespace cistern {

// Programs that do none of the work themselves but start those that do: shells, timeout, env, make.
struct LauncherKind {
  bool launches;
  bool in_batches;  // the same program again and again: xargs, make
};
LauncherKind launcher_kind(std::string_view program);

// Whether each child of the program is a run of its own. This holds for a shell without a script and a command, which
// reads the user's lines, and for programs that start a command again and again (entr, watch, hyperfine). `arguments`:
// each ended by a zero byte.
bool begins_runs(std::string_view program, std::string_view arguments);

// Cistern itself is among the libraries that the variable's value lists.
bool lists_cistern(std::string_view libraries);

// Noted at the start, where a report goes to a file that the whole run has, or when a call sets the path.
void note_run(Getenv getenv);
void note_forked_from_run();
// At the end, before live memory is judged: a launcher that has started others leaves them the path.
void note_what_was_launched();

// The path is this process's where no process that used GPU memory has it: the user started this one, or launchers of
// the run did. A launcher that has started others, or a forked child, does not have it. With %p in the path, every
// process has one.
bool is_main_of_run();
// Whether it says where else the report went; other processes do not.
bool speaks_for_run();
// A file where the report is to go is from before the run; none: it is not known when that began. `writer`: the process
// that wrote it.
std::optional<bool> is_from_before_run(const struct stat& file, pid_t writer);

}  // namespace cistern
