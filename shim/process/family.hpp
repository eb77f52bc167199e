// The verdicts of the processes that come of one: what multiprocessing, a shell or make starts may leak while the
// process that the user started is content. That one is the head of the family: the first with this gate
// (CISTERN_FAIL_ON) on the way up from a process to its parents. It counts the verdicts of those below it that end
// before it does.
//
// The counts lie in an unnamed file of the head, mapped by all: forked children have the mapping, and a process that
// was executed finds the file among the descriptors of its parents. A program that takes the head's place finds it
// among its own: around an exec, and only where others have come of the head, the descriptor is one that stays. Nothing
// is left behind, whoever is killed. Where /proc or another user does not let us look, or the parents are gone already
// (daemons), a process is the head of a family of its own.
#pragma once
#include "shim/process/options.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

// Asked at the end of every process: most have no gate, and never look at what lies in family.cpp.
inline constinit bool is_head_of_family = false;

// At the start of a process with a gate.
void join_family(const Options& options);
void family_after_fork_in_child();
// Before and after an exec of the head with such an environment. The second takes the first one's answer. Safe in
// signal handlers; they keep errno.
inline constexpr int kNotHandedOver = -1;
int hand_over_family(char* const* environment);
void keep_family(int handed_over);
// For processes that are not the head.
void count_in_family(Outcome outcome);
// The verdicts of all others, for the head; nothing for another process. Makes no system call.
FamilyFigures verdicts_of_others();

}  // namespace cistern
