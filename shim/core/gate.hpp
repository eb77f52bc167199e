// The gate, CISTERN_FAIL_ON: whether a process with the exit code 0 fails for the memory that it leaves. It fails
// closed: "undecided" is an outcome of its own, and a line says so.
#pragma once
#include <optional>

#include "shim/process/options.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

// The gate's outcome for a snapshot whose leaks have been suppressed. Pure.
GateFigures gate_of(const Snapshot& snapshot, const Options& options);

// `status`: what the process ends with by itself, where that can be changed. Notes in the snapshot what the gate came
// to. Returns what the process is to end with.
int keep_gate(Snapshot& snapshot, std::optional<int> status);
// For a process without memory to judge: the gates of its descendants.
int keep_gate_of_others(std::optional<int> status);
// On stderr, what no report says loudly enough.
void say_gate(const Snapshot& snapshot);

// For an end that no report can be made of: a filter of system calls forbids it, or a lock of ours that this thread
// holds. Makes no system call and takes no lock.
int keep_gate_unseen(std::optional<int> status);

}  // namespace cistern
