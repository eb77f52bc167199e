// See core.hpp.
#include "shim/core/core.hpp"

#include <unistd.h>

#include <new>

#include "shim/core/environment.hpp"
#include "shim/core/log.hpp"

namespace cistern {
namespace {

constinit std::atomic<const Options*> the_options{nullptr};
constinit std::atomic<Phase> the_phase{Phase::running};
constinit std::atomic<bool> aside{false};

const Options& make_options() {
  auto* made = new (internal_allocate(sizeof(Options)))
      Options(read_options(environment_variable, environ, [](std::string_view line) { warn_later(line); }));
  const Options* none = nullptr;
  // Two threads may both have read the environment; the first one's options stand.
  return the_options.compare_exchange_strong(none, made) ? *made : *none;
}

}  // namespace

bool gpu_used() { return gpu_state_made.load(std::memory_order_acquire) && (opencl::used() || cuda::used()); }

const Options& options() {
  const Options* made = the_options.load(std::memory_order_acquire);
  return made ? *made : make_options();
}

Phase phase() { return the_phase.load(std::memory_order_relaxed); }

void exit_begins() {
  Phase running = Phase::running;
  the_phase.compare_exchange_strong(running, Phase::exiting);
}

void stand_aside() { aside = true; }

void process_ended(const char* moment) {
  if (aside.load() || the_phase.exchange(Phase::reported) == Phase::reported) return;
  host::Uncounted uncounted;
  if (options().report != "none") report_end(moment);
}

void begin_anew_in_child() {
  the_phase = Phase::running;
  restart_clock();
}

}  // namespace cistern
