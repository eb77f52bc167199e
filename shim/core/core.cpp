// See core.hpp.
#include "shim/core/core.hpp"

#include <atomic>

#include "shim/process/kind.hpp"
#include "shim/process/other_ranks.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"
#include "shim/staging/copy_crew.hpp"

namespace cistern {
namespace {
constinit std::atomic<bool> aside{false};
}  // namespace

void exit_begins() {
  for (const Kind* kind : kinds())
    if (kind->exit_begins) kind->exit_begins();
  if (enter_exit()) stop_copy_crew();
}

void stand_aside() { aside = true; }

bool will_report() { return !aside.load() && (options().report != "none" || options().has_gate()); }

void let_kinds_look_back() {
  for (const Kind* kind : kinds())
    if (kind->before_exit) kind->before_exit();
}

int process_ended(ProcessEnd end) {
  int status = end.status.value_or(0);
  if (!last_report_begins()) return status ? status : status_of_last_report();
  Uncounted uncounted;
  if (will_report()) status = report_end(end);
  last_report_ends(status);
  const int beside_others = code_beside_other_ranks(end.status.value_or(0), status);
  if (beside_others != status) last_report_ends(beside_others);
  return beside_others;
}

}  // namespace cistern
