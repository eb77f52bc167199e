// See gate.hpp.
#include "shim/core/gate.hpp"

#include <algorithm>
#include <utility>

#include "shim/core/core.hpp"
#include "shim/process/family.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/log.hpp"
#include "shim/process/process.hpp"
#include "stats/format.hpp"
#include "stats/report/report.hpp"

namespace cistern {
namespace {

constexpr std::uint64_t kUnknownBytes = std::uint64_t{1} << 62;

// The memory that counts certainly, and the memory that may count.
struct Counted {
  std::uint64_t blocks = 0, bytes = 0, unsure_blocks = 0, unsure_bytes = 0;
};

bool is_of(const LeakFigures& leak, Standing standing) { return leak.leak_class == class_of(standing); }

bool was_judged(const Snapshot& snapshot) { return snapshot.judging && !snapshot.judging->why_not; }

// Memory that a complete judgement does not know was made after it: by threads that go on, or by the C library at its
// end.
bool may_be_lost(const Snapshot& snapshot, const LeakFigures& leak, FailOn::What what) {
  if (is_of(leak, Standing::none)) return true;
  if (is_of(leak, Standing::unclassified)) return !was_judged(snapshot) || snapshot.judging->unreadable_bytes > 0;
  return what == FailOn::lost && is_of(leak, Standing::possibly_lost) && snapshot.judging &&
         snapshot.judging->unseen_threads > 0;
}

bool counts(const LeakFigures& leak, FailOn::What what) {
  return what == FailOn::any || leak.rank() <= (what == FailOn::possible ? 1 : 0);
}

// Host memory is to be judged, but another allocator serves it, or a layer does not see it.
bool host_is_unjudged(const Snapshot& snapshot, const Options& options) {
  return options.gate_judges_host() && snapshot.host_sites_mode != "all";
}

// Null: Cistern saw no host memory, for example because the program brings its own allocator.
const KindFigures* host_of(const Snapshot& snapshot) {
  const auto host =
      std::find_if(snapshot.kinds.begin(), snapshot.kinds.end(), [](const KindFigures& kind) { return kind.is_host; });
  return host == snapshot.kinds.end() ? nullptr : &*host;
}

// Memory that a process inherited by a fork is judged in its parent: threads that held it may not exist in the child.
// Lost host memory counts where every block has its site: a block without one cannot be suppressed.
Counted counted(const Snapshot& snapshot, FailOn::What what, const Options& options) {
  Counted sum;
  const auto add = [&](const Vector<LeakFigures>& leaks) {
    for (const LeakFigures& leak : leaks) {
      if (leak.suppressed || leak.inherited) continue;
      if (counts(leak, what))
        sum.blocks += leak.blocks, sum.bytes += leak.bytes;
      else if (may_be_lost(snapshot, leak, what))
        sum.unsure_blocks += leak.blocks, sum.unsure_bytes += leak.bytes;
    }
  };
  add(snapshot.leaks);
  if (what == FailOn::any) return sum;
  if (snapshot.host_sites_mode == "all") add(snapshot.host_sites);
  if (!host_is_unjudged(snapshot, options)) return sum;
  const KindFigures* const host = host_of(snapshot);
  sum.unsure_blocks += host ? host->live_blocks : 1;
  sum.unsure_bytes += host ? host->live_bytes : kUnknownBytes;
  return sum;
}

bool grows(const Snapshot& snapshot, std::uint64_t bytes_min) {
  return std::any_of(snapshot.growing.begin(), snapshot.growing.end(), [&](const GrowingSite& site) {
    const bool counts = !site.is_host || snapshot.host_sites_mode == "all";
    return counts && !site.suppressed && site.trend.bytes >= static_cast<double>(bytes_min);
  });
}

// Whether memory of a kind whose call sites are not known may have grown by as much at one of them.
bool may_grow(const Snapshot& snapshot, const Options& options, std::uint64_t bytes_min) {
  const bool no_host_sites = host_is_unjudged(snapshot, options),
             no_sites = options.sites == "off" || snapshot.have_sites_slept();
  if (no_host_sites && !host_of(snapshot)) return true;
  return std::any_of(snapshot.kinds.begin(), snapshot.kinds.end(), [&](const KindFigures& kind) {
    return (kind.is_host ? no_host_sites : no_sites) && kind.allocations && kind.peak_bytes >= bytes_min;
  });
}

const char* why_host_is_unjudged(const Snapshot& snapshot) {
  if (snapshot.have_sites_slept()) return "CISTERN_WAKE: memory from before the wake has no call site";
  return snapshot.host_sites_mode == "unseen" ? "Cistern is not preloaded and does not see host memory"
                                              : "another allocator serves host memory";
}

const char* why_growth_is_unknown(const Snapshot& snapshot, const Options& options) {
  return options.sites == "off" ? "CISTERN_SITES=off: no call site is known" : why_host_is_unjudged(snapshot);
}

String why_undecided(const Snapshot& snapshot, const Options& options) {
  if (!snapshot.judging)
    return options.leak_check ? "live memory was not judged" : "CISTERN_LEAK_CHECK=0: live memory was not judged";
  const JudgingFigures& judging = *snapshot.judging;
  if (judging.why_not) return String("live memory was not judged: ") + judging.why_not;
  if (judging.unreadable_bytes) return human_bytes(judging.unreadable_bytes) + " of memory could not be read";
  if (judging.unseen_threads)
    return "the registers of " + cistern::counted(judging.unseen_threads, "other thread") + " were not seen";
  return why_host_is_unjudged(snapshot);
}

}  // namespace

GateFigures gate_of(const Snapshot& snapshot, const Options& options) {
  if (!options.gate_fault.empty()) return {Outcome::misconfigured, options.gate_fault};
  if (!snapshot.suppressions_fault.empty()) return {Outcome::misconfigured, snapshot.suppressions_fault};
  String unsure;  // why
  for (const FailOn::What what : {FailOn::any, FailOn::lost, FailOn::possible, FailOn::growing}) {
    const std::optional<std::uint64_t> bytes_min = options.fail_on.bytes_min[what];
    if (!bytes_min) continue;
    if (what == FailOn::growing) {
      if (grows(snapshot, *bytes_min)) return {Outcome::failed};
      if (unsure.empty() && may_grow(snapshot, options, *bytes_min)) unsure = why_growth_is_unknown(snapshot, options);
      continue;
    }
    const Counted sum = counted(snapshot, what, options);
    if (sum.blocks && sum.bytes >= *bytes_min) return {Outcome::failed};
    if (sum.unsure_blocks && sum.bytes + sum.unsure_bytes >= *bytes_min) unsure = why_undecided(snapshot, options);
  }
  if (!unsure.empty()) return {Outcome::undecided, std::move(unsure)};
  return {Outcome::passed};
}

namespace {

int code_of(Outcome outcome) {
  if (outcome == Outcome::passed) return 0;
  return static_cast<int>(outcome == Outcome::undecided ? options().undecided_code : options().fail_code);
}

bool is_content(std::optional<int> status) { return status && (*status & 0xff) == 0; }

}  // namespace

int keep_gate(Snapshot& snapshot, std::optional<int> status) {
  if (!options().has_gate() || !is_content(status)) return status.value_or(0);
  snapshot.family = verdicts_of_others();
  int code = code_of(snapshot.family.worst());
  if (snapshot.used_gpu_memory() || options().gate_judges_host()) {
    snapshot.gate = gate_of(snapshot, options());
    count_in_family(snapshot.gate->outcome);
    if (const int own = code_of(snapshot.gate->outcome)) code = own;
  }
  if (!code) return *status;
  snapshot.exit_code = code;
  return code;
}

int keep_gate_of_others(std::optional<int> status) {
  const FamilyFigures others = verdicts_of_others();
  const int code = is_content(status) ? code_of(others.worst()) : 0;
  if (!code) return status.value_or(0);
  if (options().report != "none")
    warn_line("CISTERN_FAIL_ON: " + sentence_of(others) + "; exit code " + decimal(code, 0) +
              " instead of 0 (CISTERN_FAIL_CHILDREN)");
  return code;
}

// The line that a gate is shut for is one of the deferred, or was said.
void say_gate(const Snapshot& snapshot) {
  if (!snapshot.gate) return;
  const GateFigures& gate = *snapshot.gate;
  if (gate.outcome == Outcome::misconfigured) say_deferred_lines();
  if (gate.outcome != Outcome::undecided) return;
  String line = "CISTERN_FAIL_ON: could not decide: " + gate.reason + "; exit code ";
  line += snapshot.exit_code ? decimal(*snapshot.exit_code, 0) + " instead of 0" : String("unchanged");
  warn_line(line + " (CISTERN_UNDECIDED_CODE)");
}

int keep_gate_unseen(std::optional<int> status) {
  if (!options().has_gate() || !is_content(status)) return status.value_or(0);
  std::uint64_t live_bytes = 0;
  if (gpu_used())
    for (const Kind* kind : kinds().subspan(1)) live_bytes += kind->live_bytes();
  const bool judges_host = options().gate_judges_host();
  if (judges_host) live_bytes += kinds().front()->live_bytes();
  const auto& asked = options().fail_on.bytes_min;
  const bool may_fail = std::any_of(asked.begin(), asked.end(), [live_bytes](const auto& bytes_min) {
    return bytes_min && live_bytes && live_bytes >= *bytes_min;
  });
  const bool is_judged = judges_host || gpu_used();
  const Outcome outcome = !options().gate_fault.empty() ? Outcome::misconfigured
                          : may_fail                    ? Outcome::undecided
                                                        : Outcome::passed;
  if (is_judged) count_in_family(outcome);
  const int own = is_judged ? code_of(outcome) : 0, code = own ? own : code_of(verdicts_of_others().worst());
  return code ? code : *status;
}

}  // namespace cistern
