// See process.hpp.
#include "shim/process/process.hpp"

#include <errno.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <new>
#include <string_view>
#include <utility>

#include "pool/base/system_call.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/log.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/counters.hpp"
#include "stats/history.hpp"
#include "stats/python/frames.hpp"

namespace cistern {
namespace {

constinit std::atomic<const Options*> the_options{nullptr};
constinit std::atomic<Phase> the_phase{Phase::running};
constinit std::atomic<int> status_reported{0};
constinit std::atomic<bool> beside_threads{false};
constinit std::atomic<bool> in_use{false};

bool is_read_at_the_end(std::string_view name) {
  constexpr std::string_view kNames[] = {"CISTERN_REPORT",     "CISTERN_REPORT_FORMAT",  "CISTERN_FAIL_ON",
                                         "CISTERN_FAIL_CODE",  "CISTERN_UNDECIDED_CODE", "CISTERN_SUPPRESSIONS",
                                         "CISTERN_LEAK_CHECK", "CISTERN_LEAK_THREADS"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// The rest of the end, beside our part, takes a program less than this.
constexpr std::uint64_t kRestNs = 1'000'000'000;
constexpr std::uintptr_t kBusy = 1;
constinit std::atomic<std::uintptr_t> ending_thread{0};  // with kBusy, while it is at what is ours
constinit std::atomic<std::uint64_t> last_busy_ns{0};

// Something that each thread has its own of.
std::uintptr_t this_thread() { return reinterpret_cast<std::uintptr_t>(&errno); }

bool is_another_that_ends(std::uintptr_t thread) {
  if (!thread || (thread & ~kBusy) == this_thread()) return false;
  return (thread & kBusy) || coarse_now_ns() - last_busy_ns.load() < kRestNs;
}

void wait_a_tick() {
  constexpr timespec kTick{0, 1'000'000};
  system_call(SYS_nanosleep, reinterpret_cast<std::uintptr_t>(&kTick), 0);
}

const Options& make_options() {
  auto* made = new (internal_allocate(sizeof(Options)))
      Options(read_options(environment_variable, early_environment(), [](std::string_view line) { warn_later(line); }));
  const Options* none = nullptr;
  if (made->frames == "native") python::switch_off();
  // Two threads may both have read the environment; the first one's options stand.
  return the_options.compare_exchange_strong(none, made) ? *made : *none;
}

// As at the start for one that the environment has.
void note_path_set_by_a_call() {
  if (system_calls_are_filtered()) return;
  const Uncounted uncounted;
  note_who_started([](const char* name) {
    return strcmp(name, "CISTERN_REPORT") ? environment_variable(name) : options().report.c_str();
  });
}

}  // namespace

const Options& options() {
  const Options* made = the_options.load(std::memory_order_acquire);
  return made ? *made : make_options();
}

void options_are_in_use() { in_use.store(true, std::memory_order_relaxed); }

// The former options stay, for threads that still read them.
OptionSet set_option(const char* name, const char* value) {
  if (!name || !value) return OptionSet::wrong;
  const Options* before = &options();
  for (;;) {
    auto changed = with_option(*before, name, value, [](std::string_view line) { warn_line(line); });
    if (!changed) return OptionSet::wrong;
    if (!strcmp(name, "CISTERN") || (in_use.load() && !is_read_at_the_end(name))) return OptionSet::too_late;
    const auto* const made = new (internal_allocate(sizeof(Options))) Options(std::move(*changed));
    if (!the_options.compare_exchange_strong(before, made)) continue;
    if (!strcmp(name, "CISTERN_REPORT")) note_path_set_by_a_call();
    return OptionSet::done;
  }
}

Phase phase() { return the_phase.load(std::memory_order_relaxed); }

bool enter_exit() {
  Phase running = Phase::running;
  if (!the_phase.compare_exchange_strong(running, Phase::exiting)) return false;
  histories_ended_ms = std::max<std::uint64_t>(coarse_milliseconds_since_start(), 1);
  return true;
}

bool last_report_begins() {
  Phase seen = the_phase.load();
  while (seen < Phase::reported)
    if (the_phase.compare_exchange_weak(seen, Phase::reported)) return true;
  return false;
}

void last_report_ends(int status) {
  status_reported = status;
  the_phase = Phase::written;
}

int status_of_last_report() { return status_reported; }

Ending::Ending() {
  for (std::uintptr_t seen = ending_thread.load();; seen = ending_thread.load()) {
    if (is_another_that_ends(seen))
      wait_a_tick();
    else if (ending_thread.compare_exchange_strong(seen, this_thread() | kBusy))
      return;
  }
}

Ending::~Ending() {
  last_busy_ns = coarse_now_ns();
  ending_thread = this_thread();
}

bool another_thread_ends() { return is_another_that_ends(ending_thread.load()); }

void let_others_end() {
  while (another_thread_ends()) wait_a_tick();
}

void give_way() {
  std::uintptr_t own = this_thread();
  ending_thread.compare_exchange_strong(own, 0);
  const std::uint64_t until_ns = coarse_now_ns() + kRestNs;
  while (another_thread_ends() || coarse_now_ns() < until_ns) wait_a_tick();
}

void begin_anew_in_child() {
  if (!__libc_single_threaded) beside_threads.store(true, std::memory_order_relaxed);
  the_phase = Phase::running;
  status_reported = 0;
  ending_thread = 0;
  histories_ended_ms = 0;
  restart_clock();
}

bool forked_beside_threads() { return beside_threads.load(std::memory_order_relaxed); }

}  // namespace cistern
