// Facts about this process that every part of the process side asks for: its options, and the phase of its life.
//
// Room: what every part of the process side needs, and no kind of memory.
// May include: pool/base, pool/heap, pool/staging, stats, stats/leaks, stats/python, stats/report.
#pragma once
#include <atomic>

#include "shim/process/options.hpp"

namespace cistern {

// Read on first use. Not for use inside malloc.
const Options& options();
// Something is done by them: from now on only those can be set that are read when the process ends.
void options_are_in_use();
enum class OptionSet { done, wrong, too_late };  // wrong: a line says what
OptionSet set_option(const char* name, const char* value);

// The program started in our __libc_start_main: what it calls is ours from then on. A copy that is linked or loaded
// later sees only what is asked of it. (Set even where CISTERN=off.)
inline constinit std::atomic<bool> preloaded{false};

// reported: the report has begun; written: it has ended.
enum class Phase : int { running, exiting, reported, written };

Phase phase();
// For exit_begins (core/core.hpp). True once.
bool enter_exit();
// True once.
bool last_report_begins();
// `status`: what the process is to end with, whichever thread of it ends first.
void last_report_ends(int status);
int status_of_last_report();

// Two threads may end the process. Without Cistern the first would have ended it by now: the C library lets both walk
// its list of handlers, and one may read memory that the other gave back. So no thread ends the process while another
// thread is in our part of the end, and for a moment after. The program's own part may hang; no thread waits longer for
// that.
class Ending {
 public:
  Ending();
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
};
bool another_thread_ends();
void let_others_end();
// Lets a thread pass that is on its way to our part of the end, although this one came first. The wait lasts no longer
// than such a moment if that thread is held up on the way.
void give_way();

// The child counts its time, and its end, from the fork.
void begin_anew_in_child();
// In a child that one of several threads forked: the C library may free a block again that one of the others had freed.
bool forked_beside_threads();

}  // namespace cistern
