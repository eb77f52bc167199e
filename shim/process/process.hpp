// What every part of the process side asks about this process: its options, and how far its life has come.
//
// Room: what every part of the process side needs, and no kind of memory.
// May include: pool/base, pool/heap, pool/staging, stats, stats/leaks, stats/python, stats/report.
#pragma once
#include "shim/process/options.hpp"

namespace cistern {

// Read on first use. Not for use inside malloc.
const Options& options();

// reported: the report has begun; written: it has ended.
enum class Phase : int { running, exiting, reported, written };

Phase phase();
// The program called exit or returned from main; no destructor has run. Idempotent.
void exit_begins();
// True once.
bool last_report_begins();
void last_report_ends();
// Between the two, in any other thread.
bool another_thread_reports();

// The child counts its time, and its end, from the fork.
void begin_anew_in_child();
// In a child that one of several threads forked: the C library may free a block again that one of the others had freed.
bool forked_beside_threads();

}  // namespace cistern
