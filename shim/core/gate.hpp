// The gate, CISTERN_FAIL_ON: whether a process that is content by its own exit code fails for the memory it leaves.
// It fails closed: what nobody can say is an outcome of its own, and is said.
#pragma once
#include <optional>

#include "shim/process/options.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

// Of a snapshot whose leaks have been suppressed. Pure.
GateFigures gate_of(const Snapshot& snapshot, const Options& options);

// `status`: what the process ends with by itself, where that can be changed. Notes in the snapshot what the gate came
// to. Returns what the process is to end with.
int keep_gate(Snapshot& snapshot, std::optional<int> status);
// Of a process that has no memory to judge, for those that came of it.
int keep_gate_of_others(std::optional<int> status);
// On stderr, what no report says loudly enough.
void say_gate(const Snapshot& snapshot);

// For an end that no report can be made of: a filter of system calls forbids it, or a lock of ours that this thread
// holds. Makes no system call and takes no lock.
int keep_gate_unseen(std::optional<int> status);

}  // namespace cistern
