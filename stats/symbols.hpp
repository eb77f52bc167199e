// Names and lines for the frames of a report, through libbacktrace (static; its memory: symbols_memory.cpp).
// Called at report time only. Bounded: when the budget is spent the remaining frames keep module and offset.
#pragma once
#include <string_view>

#include "stats/snapshot.hpp"

namespace cistern {

// "void ns::(anonymous namespace)::load<int>(int, float*) [clone .cold]" -> "ns::load<int>": file and line tell
// overloads apart.
String short_function_name(std::string_view demangled);

// Time by the clock and, on a busy machine, where a thread gets little of it, the calling thread's own. That one takes
// a system call to ask: 0: it is not asked.
struct SymbolBudget {
  unsigned clock_ms, thread_ms = 0;
  constexpr SymbolBudget(unsigned by_clock_ms, unsigned of_thread_ms = 0)
      : clock_ms(by_clock_ms), thread_ms(of_thread_ms) {}
};

// Fills function, file and line of every frame, inserts frames for inlined calls, and drops leading frames that
// belong to Cistern itself (namespace cistern, cistern_*: the linked library has no module of its own).
// Called with no lock held, by any number of threads: the C library, the dynamic linker and malloc are asked.
void symbolise(Vector<LeakFigures>& leaks, SymbolBudget budget);
// All stacks of a report in one budget: first the leaks', then those of the transfers' worst sites.
void symbolise(Snapshot& snapshot, SymbolBudget budget);

void symbols_before_fork();
void symbols_after_fork();
// The child may report while another thread of the parent did. A fork does not wait for that: it takes seconds.
void symbols_after_fork_in_child();

}  // namespace cistern
