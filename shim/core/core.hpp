// The composition root: all kinds of one process, its snapshot, and the end-of-process protocol.
//
// Room: the composition root, which knows all kinds of memory.
// May include: everything.
#pragma once
#include "stats/sink.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

// The last destructor has run ("exit"), the program ended immediately ("_exit") or by a signal ("SIGTERM"): writes the
// report, once. For a process that has something to say (shim/lifecycle.cpp). `status`: what it ends with by itself,
// where that can still be changed. Returns what it is to end with.
struct ProcessEnd {
  const char* moment;
  std::optional<int> status;
  const void* stack_in_use;  // see judging.hpp; null: live memory is not judged, unless it was before
};
int process_ended(ProcessEnd end);

// The program called exit or returned from main; no destructor has run. Idempotent.
void exit_begins();
// A report is written at the end, or the exit code depends on one.
bool will_report();

// The kinds' last look at the run, before exit begins.
void let_kinds_look_back();

// Another copy of Cistern in this process does the work: this one says nothing at the end.
void stand_aside();

// Everything that a report may show, now (snapshot.cpp).
Snapshot take_snapshot(const char* moment);
// A report of a process that goes on, to the place of its reports.
void report_now();
// The same as JSON, for another process.
enum class Judged { no, yes };
void render_now(Judged judged, Sink& sink);
// As process_ended.
int report_end(ProcessEnd end);

}  // namespace cistern
