// The composition root: all kinds of one process, its snapshot, and the end-of-process protocol.
//
// Room: the composition root, which knows all kinds of memory.
// May include: everything.
#pragma once
#include "stats/snapshot.hpp"

namespace cistern {

// The last destructor has run ("exit") or the program ended at once ("_exit"): write the report, once.
// For a process that has something to say (shim/lifecycle.cpp).
void process_ended(const char* moment);

bool gpu_used();

// Another copy of Cistern in this process does the work: this one says nothing at the end.
void stand_aside();

// Everything that a report may show, now (snapshot.cpp).
Snapshot take_snapshot(const char* moment);
void report_end(const char* moment);

}  // namespace cistern
