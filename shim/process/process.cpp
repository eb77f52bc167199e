// See process.hpp.
#include "shim/process/process.hpp"

#include <errno.h>
#include <sys/single_threaded.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "shim/process/copy_crew.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/log.hpp"
#include "stats/counters.hpp"
#include "stats/history.hpp"
#include "stats/python/frames.hpp"

namespace cistern {
namespace {

constinit std::atomic<const Options*> the_options{nullptr};
constinit std::atomic<Phase> the_phase{Phase::running};
constinit std::atomic<bool> beside_threads{false};
constinit std::atomic<const void*> reporting_thread{nullptr};

// Something that each thread has its own of.
const void* this_thread() { return &errno; }

const Options& make_options() {
  auto* made = new (internal_allocate(sizeof(Options)))
      Options(read_options(environment_variable, early_environment(), [](std::string_view line) { warn_later(line); }));
  const Options* none = nullptr;
  if (made->frames == "native") python::switch_off();
  // Two threads may both have read the environment; the first one's options stand.
  return the_options.compare_exchange_strong(none, made) ? *made : *none;
}

}  // namespace

const Options& options() {
  const Options* made = the_options.load(std::memory_order_acquire);
  return made ? *made : make_options();
}

Phase phase() { return the_phase.load(std::memory_order_relaxed); }

void exit_begins() {
  Phase running = Phase::running;
  if (!the_phase.compare_exchange_strong(running, Phase::exiting)) return;
  histories_ended_ms = std::max<std::uint64_t>(coarse_milliseconds_since_start(), 1);
  stop_copy_crew();
}

bool last_report_begins() {
  Phase seen = the_phase.load();
  while (seen < Phase::reported)
    if (the_phase.compare_exchange_weak(seen, Phase::reported)) {
      reporting_thread.store(this_thread());
      return true;
    }
  return false;
}

void last_report_ends() { the_phase = Phase::written; }

bool another_thread_reports() {
  return the_phase.load() == Phase::reported && reporting_thread.load() != this_thread();
}

void begin_anew_in_child() {
  if (!__libc_single_threaded) beside_threads.store(true, std::memory_order_relaxed);
  the_phase = Phase::running;
  histories_ended_ms = 0;
  restart_clock();
}

bool forked_beside_threads() { return beside_threads.load(std::memory_order_relaxed); }

}  // namespace cistern
