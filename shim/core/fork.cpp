// The work of every part of Cistern at a fork, in one list. The thread that forks takes all locks, so that the child
// finds what they guard whole, and starts the child's figures from zero. A gate reads the sources: a lock that neither
// is taken here nor is made new in the child fails it.
//
// The C library forks in this order: the handlers, ours last (shim/lifecycle.cpp); its own locks (name service, stdio,
// malloc); the fork. So ours are held while others that have those locks may wait for memory: see pool/base/lock.hpp.
#include "shim/core/fork.hpp"

#include <cstddef>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/registered_memory.hpp"
#include "shim/core/core.hpp"
#include "shim/judging/judging.hpp"
#include "shim/library/mapped.hpp"
#include "shim/library/pools.hpp"
#include "shim/library/shared.hpp"
#include "shim/library/transfers.hpp"
#include "shim/library/unified.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/log.hpp"
#include "shim/process/process.hpp"
#include "shim/process/record.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/staging/copy_crew.hpp"
#include "stats/counters.hpp"
#include "stats/recording.hpp"
#include "stats/shared_names.hpp"
#include "stats/sites.hpp"

namespace cistern {
namespace {

constexpr ForkPart kSites = {sites_before_fork, sites_after_fork, sites_after_fork_in_child, sites_after_fork_in_child};
constexpr ForkPart kTables = {internal_memory_before_fork, internal_memory_after_fork, internal_memory_after_fork,
                              internal_memory_after_fork};
constexpr ForkPart kRegistered = {registered_memory_before_fork, registered_memory_after_fork,
                                  registered_memory_after_fork_in_child, registered_memory_after_fork};
constexpr ForkPart kLog = {log_before_fork, log_after_fork_in_parent, log_after_fork_in_child, log_after_fork_in_child};

constexpr ForkPart kPools = {library::pools_before_fork, library::pools_after_fork_in_parent,
                             library::pools_after_fork_in_child, library::pools_after_fork_in_parent};

constexpr ForkPart kTransfers = {library::transfers_before_fork, library::transfers_after_fork_in_parent,
                                 library::transfers_after_fork_in_child, library::transfers_after_fork_in_parent};

constexpr ForkPart kUnified = {library::unified_before_fork, library::unified_after_fork_in_parent,
                               library::unified_after_fork_in_child, library::unified_after_fork_in_child};

constexpr ForkPart kMapped = {library::mapped_before_fork, library::mapped_after_fork_in_parent,
                              library::mapped_after_fork_in_child, library::mapped_after_fork_in_child};

constexpr ForkPart kShared = {library::shared_before_fork, library::shared_after_fork_in_parent,
                              library::shared_after_fork_in_child, library::shared_after_fork_in_parent};

constexpr ForkPart kCrew = {copy_crew_before_fork, copy_crew_after_fork_in_parent, copy_crew_after_fork_in_child,
                            copy_crew_after_fork_in_child};

// A part's locks may be held while those of a later one are taken. The order is: the kinds, which keep sites and use
// host memory, the last row first; the library's shared buffers, transfers, files, unified buffers and pools; the
// copying threads; sites. Then come host memory, the program's registered and locked memory, and the locks that all
// parts use.
std::size_t part_count() { return kinds().size() + 10; }
const ForkPart& part_at(std::size_t i) {
  const std::size_t others = kinds().size() - 1;
  if (i < others) return kinds()[others - i]->fork;
  const ForkPart* const rest[] = {&kShared, &kTransfers,       &kMapped,     &kUnified, &kPools, &kCrew,
                                  &kSites,  &kinds()[0]->fork, &kRegistered, &kTables,  &kLog};
  return *rest[i - others];
}

// A signal handler may fork while this thread forks: all that is done then is the outer fork's. But its parent may take
// again the locks that are free again; its child, which has no other thread, is done when all is done.
[[gnu::tls_model("initial-exec")]] constinit thread_local int forks = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool under_lock = false;

bool outermost() { return forks == 1; }

}  // namespace

void before_fork() {
  forks = forks + 1;
  if (!outermost()) return;
  under_lock = locks_held > 0;
  recording::before_fork();
  for (std::size_t i = 0; i < part_count(); ++i) part_at(i).before();
  if (options().report_requested && will_report() && !system_calls_are_filtered())
    prepare_shared_names();  // by one thread: the others wait for its locks
}

void after_fork_in_parent() {
  const bool ends = outermost();
  forks = forks - 1;
  if (!ends) return;
  for (std::size_t i = part_count(); i-- > 0;) part_at(i).in_parent();
}

void after_fork_in_child() {
  if (outermost()) {
    recording::stop_in_child();
    for (std::size_t i = part_count(); i-- > 0;) under_lock ? part_at(i).in_child_under_lock() : part_at(i).in_child();
    begin_anew_in_child();
    recording_after_fork_in_child(under_lock);
    judging_after_fork_in_child();
  }
  forks = forks - 1;
}

}  // namespace cistern
