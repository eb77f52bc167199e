// In a program that links the library: the report at exit, where CISTERN_REPORT asks for one. Every program that links
// the library links this; the shared object has it not (shim/lifecycle.cpp does all of it and more).
//
// Registered before main, so the report comes after the program's own exit handlers and destructors, but for those of
// libraries that it loaded at start.
#include <stdlib.h>
#include <unistd.h>

#include "shim/core/core.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/process.hpp"
#include "shim/process/standard_error.hpp"
#include "stats/counters.hpp"

namespace cistern {
namespace {

constinit pid_t started_in = 0;

// A child that was forked without our handlers has its parent's figures.
void at_exit() {
  if (getpid() == started_in) process_ended({"exit", {}, nullptr});
}

[[gnu::constructor]] void start() {
  if (switched_off()) return;
  start_clock();
  if (!options().report_requested || options().report == "none") return;
  started_in = getpid();
  note_standard_error();
  note_start_directory(environment_variable);
  note_who_started(environment_variable);
  atexit(at_exit);
}

}  // namespace
}  // namespace cistern
