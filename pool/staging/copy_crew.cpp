// The caller's part and the helpers' part of a copy, and how helpers begin and end.
#include "pool/staging/copy_crew.hpp"

#include <limits.h>
#include <linux/prctl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "pool/base/blocked_signals.hpp"
#include "pool/base/clock.hpp"
#include "pool/base/system_call.hpp"

namespace cistern::staging {
namespace {

constexpr std::uint64_t kSpinNanoseconds = 20'000;
constexpr int kPausesOfALook = 32;
constexpr std::size_t kStackBytes = 128 << 10;
constexpr std::size_t kStreamedRunBytesMin = 4096;
constexpr unsigned kPercentForCachedToHost = 10;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

// For a short while; true: it came.
template <class Condition>
bool spin_until(Condition condition) {
  const std::uint64_t end = monotonic_ns() + kSpinNanoseconds;
  do {
    for (int i = 0; i < kPausesOfALook; ++i, pause())
      if (condition()) return true;
  } while (monotonic_ns() < end);
  return false;
}

void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  system_call(SYS_futex, reinterpret_cast<std::uintptr_t>(&word), FUTEX_WAIT_PRIVATE, value, 0);
}
void wake(std::atomic<std::uint32_t>& word, int threads) {
  system_call(SYS_futex, reinterpret_cast<std::uintptr_t>(&word), FUTEX_WAKE_PRIVATE,
              static_cast<std::uintptr_t>(threads));
}

}  // namespace

// --- The caller's part
bool CopyCrew::copy(const Side& to, const ConstSide& from, const Box& box, Direction direction, Guarded guarded,
                    Helped helped) {
  const Shares shares(to, from, box, settings_.share_bytes, guarded);
  const std::uint64_t start = monotonic_ns();
  const bool is_large = helped == Helped::yes && shares.bytes() >= settings_.alone_below_bytes && shares.count() > 1;
  const bool copied =
      is_large ? copy_large(shares, direction) : shares.copy_all(settings_.stores.value_or(Stores::cached));
  busy_ns_.fetch_add(monotonic_ns() - start, std::memory_order_relaxed);
  return copied;
}

bool CopyCrew::copy_large(const Shares& shares, Direction direction) {
  // This is a copy in a signal handler that interrupted the thread in the lines below.
  if (lock_.held_here()) return shares.copy_all(Stores::cached);
  const Begun begun = begin(shares, direction);
  const std::uint64_t start = monotonic_ns();
  bool copied = true;
  if (!begun.job) {
    copied = shares.copy_all(begun.run.stores);
  } else {
    post(static_cast<int>(begun.helpers_wanted));
    if (begun.helpers_missing) start_helpers(begun.helpers_wanted);
    copy_shares(*begun.job, shares, begun.run.stores);
    // The process is a forked child now, and the helpers' part was not copied.
    const Finished finished = finish(*begun.job, begun.ticket);
    if (finished == Finished::not_ours) return shares.copy_all(Stores::cached);
    copied = finished == Finished::copied;
  }
  if (!begun.run.counts && !begun.workers) return copied;
  const std::uint64_t took = monotonic_ns() - start;
  Locked hold(lock_);
  if (begun.workers) begun.workers->took(begun.threads, shares.bytes(), took);
  choices_[static_cast<int>(direction)].took(begun.run, shares.bytes(), took,
                                             direction == Direction::to_host ? kPercentForCachedToHost : 0);
  return copied;
}

WorkersChoice& CopyCrew::workers_of(const Shares& shares, Direction direction) {
  return workers_[static_cast<int>(direction)][shares.guarded() != Guarded::neither];
}

// `most`: helpers. Copies that measure stores, and those of few shares, say nothing about threads.
void CopyCrew::choose_helpers(Begun& begun, const Shares& shares, Direction direction, unsigned most) {
  begun.helpers_wanted = most;
  if (!settings_.measures_threads) return;
  WorkersChoice& workers = workers_of(shares, direction);
  if (begun.run.is_a_look || shares.count() < size_t{2} * WorkersChoice::kFirstThreads) {
    begun.helpers_wanted = std::min(most, std::max(workers.threads(), 1u) - 1);
    return;
  }
  begun.workers = &workers;
  begun.threads = workers.next(most + 1);
  begun.helpers_wanted = begun.threads.threads - 1;
}

CopyCrew::Begun CopyCrew::begin(const Shares& shares, Direction direction) {
  const CpuMask mask = CpuMask::of_this_thread();
  const unsigned cpus = mask.cpus();
  Begun begun;
  Locked hold(lock_);
  if (shares.guarded() != Guarded::neither)
    begun.run = {Stores::cached, false};  // the kernel's
  else if (settings_.stores)
    begun.run = {*settings_.stores, false};
  else if (shares.longest_run_bytes() >= kStreamedRunBytesMin)
    begun.run = choices_[static_cast<int>(direction)].next();
  unsigned most = settings_.threads.create ? std::min(settings_.helpers_max, kHelpersMost) : 0;
  if (!settings_.helpers_share_cpus) most = std::min(most, cpus ? cpus - 1 : 0);
  choose_helpers(begun, shares, direction, most);
  if (begun.helpers_wanted == 0 || stopping_.load(std::memory_order_relaxed) || !moves_to(mask)) return begun;
  begun.helpers_missing = helper_count_ < begun.helpers_wanted && !starting_ && copies_to_wait_ == 0;
  if (copies_to_wait_ != 0) --copies_to_wait_;
  if (helper_count_ == 0 && !begun.helpers_missing) return begun;
  Job* const job = std::find_if(jobs_, jobs_ + kJobs, [](const Job& one) { return one.ticket == 0; });
  if (job == jobs_ + kJobs) return begun;
  job->shares = shares;
  job->stores = begun.run.stores;
  job->helpers_max = begun.helpers_wanted;
  job->next.store(0, std::memory_order_relaxed);
  job->failed.store(false, std::memory_order_relaxed);
  begun.job = job;
  begun.ticket = ++last_ticket_;
  job->ticket.store(begun.ticket, std::memory_order_relaxed);
  return begun;
}

// Under the lock. Helpers move to a new mask before they help (join): idle ones may have it changed, those that copy
// for another caller may not.
bool CopyCrew::moves_to(const CpuMask& mask) {
  if (std::any_of(jobs_, jobs_ + kJobs, [](const Job& one) { return one.ticket != 0; })) return mask_.within(mask);
  if (!(mask_ == mask)) mask_ = mask, ++mask_number_;
  return true;
}

void CopyCrew::post(int helpers) {
  posted_.fetch_add(1);
  if (sleepers_.load() != 0) wake(posted_, helpers);
}

void CopyCrew::copy_share(Job& job, const Shares& shares, std::size_t share, Stores stores) {
  if (!job.failed.load(std::memory_order_relaxed) && !shares.copy(share, stores))
    job.failed.store(true, std::memory_order_relaxed);
}

// Claimed, a share is copied. A helper may stop between two: the caller is still there.
void CopyCrew::copy_shares(Job& job, const Shares& shares, Stores stores) {
  for (std::size_t share; (share = job.next.fetch_add(1, std::memory_order_relaxed)) < shares.count();)
    copy_share(job, shares, share, stores);
}

// All shares are claimed, so no helper joins any more but one that found some under the lock.
CopyCrew::Finished CopyCrew::finish(Job& job, std::uint64_t ticket) {
  const auto done = [&] { return job.helpers.load(std::memory_order_acquire) == 0 || job.ticket != ticket; };
  while (true) {
    if (!done() && !spin_until(done)) {
      job.owner_sleeps.store(true);
      for (std::uint32_t helpers; (helpers = job.helpers.load()) != 0 && job.ticket == ticket;)
        sleep_while(job.helpers, helpers);
      job.owner_sleeps.store(false);
    }
    Locked hold(lock_);
    if (job.ticket != ticket) return Finished::not_ours;
    if (job.helpers.load(std::memory_order_acquire) != 0) continue;
    job.ticket = 0;
    return job.failed.load(std::memory_order_relaxed) ? Finished::failed : Finished::copied;
  }
}

// --- The helpers' part
struct CopyCrew::Helper {
  std::uint64_t mask_number = 0, refused_mask = 0;
};

void CopyCrew::help() {
  Helper helper;
  for (bool has_just_worked = false;;) {
    const std::uint32_t seen = posted_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    Job* const job = join(helper);
    if (!job) {
      wait_for_work(seen, has_just_worked);
      has_just_worked = false;
      continue;
    }
    const std::uint64_t start = monotonic_ns();
    const std::size_t count = job->shares.count();
    for (std::size_t share; !stopping_.load(std::memory_order_relaxed) &&
                            (share = job->next.fetch_add(1, std::memory_order_relaxed)) < count;)
      copy_share(*job, job->shares, share, job->stores);
    busy_ns_.fetch_add(monotonic_ns() - start, std::memory_order_relaxed);
    leave(*job);
    has_just_worked = true;
  }
}

CopyCrew::Job* CopyCrew::join(Helper& helper) {
  Job* job;
  {
    Locked hold(lock_);
    if (helper.refused_mask == mask_number_) return nullptr;
    job = std::find_if(jobs_, jobs_ + kJobs, [](const Job& one) {
      return one.ticket != 0 && one.next.load(std::memory_order_relaxed) < one.shares.count() &&
             one.helpers.load(std::memory_order_relaxed) < one.helpers_max;
    });
    if (job == jobs_ + kJobs) return nullptr;
    job->helpers.fetch_add(1, std::memory_order_relaxed);
  }
  // From here to leave() the mask is what it is.
  if (helper.mask_number == mask_number_) return job;
  if (mask_.move_this_thread()) {
    helper.mask_number = mask_number_;
    return job;
  }
  helper.refused_mask = mask_number_;
  leave(*job);
  return nullptr;
}

void CopyCrew::leave(Job& job) {
  if (job.helpers.fetch_sub(1) == 1 && job.owner_sleeps.load()) wake(job.helpers, 1);
}

void CopyCrew::wait_for_work(std::uint32_t seen, bool has_just_worked) {
  const auto is_posted = [&] { return posted_.load(std::memory_order_relaxed) != seen; };
  if (has_just_worked && spin_until(is_posted)) return;
  sleepers_.fetch_add(1);
  sleep_while(posted_, seen);
  sleepers_.fetch_sub(1);
}

// --- How helpers begin and end
void CopyCrew::start_helpers(unsigned wanted) {
  const SignalsBlocked blocked;
  {
    Locked hold(lock_);
    if (starting_ || stopping_.load()) return;
    starting_ = true;
  }
  while (true) {
    {
      Locked hold(lock_);
      if (helper_count_ >= wanted || stopping_.load()) break;
    }
    if (start_helper()) continue;
    Locked hold(lock_);
    copies_to_wait_ = kCopiesAfterARefusal;
    break;
  }
  Locked hold(lock_);
  starting_ = false;
}

// Not under the lock: the C library may have to wait for one of its own, and for memory. The system gives the thread
// the caller's CPUs, and all signals blocked. With much thread-local storage a small stack is refused.
bool CopyCrew::start_helper() {
  const auto main = [](void* crew) -> void* {
    system_call(SYS_prctl, PR_SET_NAME, reinterpret_cast<std::uintptr_t>("cistern-copy"));
    let_faults_through();
    static_cast<CopyCrew*>(crew)->help();
    return nullptr;
  };
  pthread_t thread;
  const std::size_t small =
      std::max(kStackBytes, static_cast<std::size_t>(std::max(0l, sysconf(_SC_THREAD_STACK_MIN))));
  const auto create = settings_.threads.create;
  if (create(&thread, small, main, this) != 0 && create(&thread, 0, main, this) != 0) return false;
  Locked hold(lock_);
  helpers_[helper_count_++] = thread;
  return true;
}

void CopyCrew::stop() {
  stopping_.store(true);
  posted_.fetch_add(1);
  if (sleepers_.load() != 0) wake(posted_, INT_MAX);
  // A signal handler that interrupted this thread under the lock exits: the helpers wait for it, and go with the
  // process.
  if (lock_.held_here()) return;
  pthread_t threads[kHelpersMost];
  unsigned count = 0;
  for (bool starting = true; starting;) {
    {
      Locked hold(lock_);
      starting = starting_;
      if (!starting) {
        count = std::exchange(helper_count_, 0);
        std::copy_n(helpers_, count, threads);
      }
    }
    if (starting) sched_yield();
  }
  for (unsigned i = 0; i < count; ++i) settings_.threads.join(threads[i], nullptr);
}

StoresFigures CopyCrew::stores_figures(Direction direction) {
  Locked hold(lock_);
  return choices_[static_cast<int>(direction)].figures();
}

unsigned CopyCrew::helpers() {
  Locked hold(lock_);
  return helper_count_;
}

// A handler may have forked in the middle of this thread's own copy. That copy then finds that its job is gone, and is
// made again by this thread alone.
void CopyCrew::after_fork_in_child() {
  for (Job& job : jobs_) {
    job.ticket = 0;
    job.helpers = 0;
    job.owner_sleeps = false;
  }
  sleepers_ = 0;
  starting_ = false;
  copies_to_wait_ = 0;
  helper_count_ = 0;
  busy_ns_ = 0;
  lock_.unlock_after_fork();
}

}  // namespace cistern::staging
