// Names and lines for the frames of a report, through libbacktrace (static; its memory: symbols_memory.cpp).
// Called at report time only. Bounded: after `budget_ms` the remaining frames keep module and offset.
#pragma once
#include <string_view>

#include "stats/snapshot.hpp"

namespace cistern {

// "void ns::(anonymous namespace)::load<int>(int, float*) [clone .cold]" -> "ns::load<int>": file and line tell
// overloads apart.
String short_function_name(std::string_view demangled);

// Fills function, file and line of every frame, inserts frames for inlined calls, and drops leading frames that
// belong to Cistern itself (namespace cistern, cistern_*: the linked library has no module of its own).
// Called with no lock held, by any number of threads: the C library, the dynamic linker and malloc are asked.
void symbolise(Vector<LeakFigures>& leaks, unsigned budget_ms);
// All stacks of a report in one budget: first the leaks', then those of the transfers' worst sites.
void symbolise(Snapshot& snapshot, unsigned budget_ms);

void symbols_before_fork();
void symbols_after_fork();
// The child may report while another thread of the parent did. A fork does not wait for that: it takes seconds.
void symbols_after_fork_in_child();

}  // namespace cistern
