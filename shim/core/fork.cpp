// What every part of Cistern does at a fork, in one list. The thread that forks takes all locks, so that the child
// finds what they guard whole, and starts the child's figures anew. A gate reads the sources: a lock that neither is
// taken here nor is made new in the child fails it.
//
// The C library forks in this order: the handlers, ours last (shim/lifecycle.cpp); its own locks (name service, stdio,
// malloc); the fork. So ours are held while others that have those locks may wait for memory: see pool/lock.hpp.
#include "shim/core/fork.hpp"

#include <sys/single_threaded.h>

#include <atomic>
#include <iterator>

#include "pool/internal_memory.hpp"
#include "pool/lock.hpp"
#include "shim/core/core.hpp"
#include "shim/core/host_native.hpp"
#include "shim/core/log.hpp"
#include "stats/counters.hpp"
#include "stats/sites.hpp"

namespace cistern {
namespace {

struct Part {
  void (*before)(), (*in_parent)(), (*in_child)();
  // In a child of a signal handler that interrupted this thread under a lock of ours, and goes on with it.
  void (*in_child_under_lock)();
};

// A part's locks may be held while those of a later one are taken.
constexpr Part kParts[] = {
    {cuda::before_fork, cuda::after_fork_in_parent, cuda::after_fork_in_child, cuda::after_fork_in_parent},
    {opencl::before_fork, opencl::after_fork_in_parent, opencl::after_fork_in_child, opencl::after_fork_in_parent},
    {sites_before_fork, sites_after_fork, sites_after_fork_in_child, sites_after_fork_in_child},
    {host::native_before_fork, host::native_after_fork, host::native_after_fork, host::native_after_fork},
    {host::before_fork, host::after_fork_in_parent, host::after_fork_in_child, host::after_fork_in_child},
    {internal_memory_before_fork, internal_memory_after_fork, internal_memory_after_fork, internal_memory_after_fork},
    {log_before_fork, log_after_fork_in_parent, log_after_fork_in_child, log_after_fork_in_child},
};

// A signal handler may fork while this thread forks: all that is done then is the outer fork's. But its parent may take
// the locks anew that are free again; its child, which has no other thread, is done when all is done.
[[gnu::tls_model("initial-exec")]] constinit thread_local int forks = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool under_lock = false;

constinit std::atomic<bool> beside_threads{false};

}  // namespace

bool forked_beside_threads() { return beside_threads.load(std::memory_order_relaxed); }

void before_fork() {
  forks = forks + 1;
  if (forks > 1) return;
  under_lock = locks_held > 0;
  for (const Part& part : kParts) part.before();
}

void after_fork_in_parent() {
  forks = forks - 1;
  if (forks > 0) return;
  for (auto part = std::rbegin(kParts); part != std::rend(kParts); ++part) part->in_parent();
}

void after_fork_in_child() {
  if (!__libc_single_threaded) beside_threads.store(true, std::memory_order_relaxed);
  if (forks == 1) {
    for (auto part = std::rbegin(kParts); part != std::rend(kParts); ++part)
      under_lock ? part->in_child_under_lock() : part->in_child();
    begin_anew_in_child();
  }
  forks = forks - 1;
}

}  // namespace cistern
