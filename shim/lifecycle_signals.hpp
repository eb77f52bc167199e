// A process that is to report does so when SIGHUP, SIGINT, SIGTERM or SIGABRT ends it by its default action; then it
// dies by the signal, after two seconds at the latest. It is to report where CISTERN_REPORT is set, or once it used GPU
// memory. The program's own handlers and its ignored signals stay as they are, and what it reads of its signal table
// shows nothing of ours.
#pragma once
#include <signal.h>

#include <cstddef>

namespace cistern {

// Signals that ask for a report or wake call sites, where an option names them: at the start.
void watch_requests();
// For a process that a report is asked of, at the start; else later, by the first thread that uses a GPU. Idempotent.
void watch_ends_by_signal();
void watch_signals_in_child();
// Before a filter of system calls is set, which may forbid those that we would make: signals are the program's again.
void leave_signals();
void watch_signals_again();
// A thread has set such a stack aside for its handlers. Where it is small, SIGABRT is the program's from now on: the
// program's handler for a fault may call abort there, and no room may be left for another handler. Safe in signal
// handlers; keeps errno.
void note_stack_for_handlers(std::size_t bytes);
// For a thread that would end the process in its own way although a signal has come that the process is to die of: it
// does so here.
void wait_for_end_by_signal();
// For a rank that a signal came to when it was about to end by itself: see lets_others_report.
void let_other_ranks_report();

// While one lives, the C library's functions find the signal's entry as the program left it. Safe in signal handlers
// and in children of vfork; keeps errno.
class EntryOfProgram {
 public:
  explicit EntryOfProgram(int number);
  ~EntryOfProgram();
  EntryOfProgram(const EntryOfProgram&) = delete;
  EntryOfProgram& operator=(const EntryOfProgram&) = delete;

 private:
  const int number_;  // 0: not one of ours
};

// `entry`, as read, with ours replaced by what the program set.
void show_entry_of_program(int number, struct sigaction& entry);
// The program has set the entry.
void note_entry_of_program(int number);

}  // namespace cistern
