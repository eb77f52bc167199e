// The surroundings of the process, for reports: the rank that a launcher gave it, the host it runs on, the directory it
// was started in.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <optional>

#include "pool/base/internal_memory.hpp"
#include "shim/process/options.hpp"

namespace cistern {

// The variable, as secure_getenv: set-user-ID programs see none.
const char* environment_variable(const char* name);
// The environment, from the loader's first malloc on, when the C library has none yet; null: not to be had.
char** early_environment();

// CISTERN=off. Asked once.
bool ask_switched_off();
inline bool switched_off() {
  static constinit std::atomic<int> decided{-1};
  int off = decided.load(std::memory_order_relaxed);
  if (off < 0) [[unlikely]]
    decided.store(off = ask_switched_off(), std::memory_order_relaxed);
  return off != 0;
}

struct Ranks {
  std::optional<int> rank, ranks;
};
// From the variables of Open MPI, PMI (MPICH, Intel MPI), PMIx and Slurm, in this order.
Ranks read_ranks(Getenv getenv);
// One of several ranks that Open MPI started. When it ends a job it sends SIGTERM to all ranks, and SIGKILL as soon as
// the first of them has died.
bool dies_with_other_ranks(Getenv getenv);
// This program starts the ranks of a parallel job and does none of their work: mpirun and its kin, by their names.
bool launches_ranks();
bool launches_ranks(std::string_view program);

String host_name();

// Appends its first bytes to `text`; 0, or the errno of what failed.
int read_file(const char* path, std::size_t bytes_max, String& text);

// Relative paths are taken from the directory that the process was started in, because programs change theirs.
// Noted at the start, and only when one is asked for; a forked child has its parent's.
void note_start_directory(Getenv getenv);
// The process that the user started was not forked, nor started by another process with Cistern and the same report
// path. With %r in its path it is the first process of its rank. Noted at the start, and only when a path is asked for,
// or when a call sets one; a path with %p belongs to every process.
void note_who_started(Getenv getenv);
void note_forked();
bool started_by_user();
// Whether the process has the report path of this one, and has Cistern as this one has it. `error`: why that is not
// known.
bool is_of_same_run(pid_t starter, Getenv getenv, int* error = nullptr);
// Where another process with Cistern started this one, a descriptor may lead anywhere: to a pipe between them, to a
// data file. It is the one that the user named if all of them have the same, up to the one that the user started.
bool starters_have_the_same(int descriptor);

// Some options were not understood: a process that has nothing else to say says so too, where its parent, by its own
// environment, had others. Noted at the start, and only then.
void note_complaints();
bool complains_in_silence();

// Absolute: `path` itself, or below the noted directory; unchanged when none could be noted.
String from_start_directory(const String& path);

}  // namespace cistern
