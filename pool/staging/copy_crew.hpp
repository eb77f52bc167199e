// Copies by the calling thread and a few helper threads: one core copies at a fraction of the rate of a link to a
// device. The caller and the helpers claim the shares of a copy one by one, so the caller never waits for a helper that
// has not begun. Without helpers the caller copies all shares: on one CPU, if no thread can be made, after stop, in a
// forked child. A copy always completes, unless the program's side is guarded (guarded_copy.hpp) and a part of it is
// gone.
//
//   copy(to, from, box, direction) -> small: the caller alone
//     -> begin: a job, if there are helpers or may be -> shares, claimed -> finish: those that helpers still copy
//
// How many help is measured, for each way that memory is reached (workers_choice.hpp). They begin with the first large
// copy. Then they sleep, but for the 20 us after a copy, in which the next chunk of
// a transfer mostly comes. They run where the caller of the moment may run, and on no other CPU. They block all signals
// but those of a fault, which would otherwise end the process past a handler of the program.
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "pool/base/lock.hpp"
#include "pool/staging/box.hpp"
#include "pool/staging/cpu_mask.hpp"
#include "pool/staging/stores_choice.hpp"
#include "pool/staging/streaming_copy.hpp"
#include "pool/staging/workers_choice.hpp"

namespace cistern::staging {

enum class Direction : unsigned char { to_device, to_host };

// Whether helpers may copy too.
enum class Helped : bool { no, yes };

class CopyCrew {
 public:
  static constexpr unsigned kHelpersMost = 15;

  // 0 for success. A stack of 0 bytes is one of the usual size.
  struct Threads {
    int (*create)(pthread_t* thread, std::size_t stack_bytes, void* (*main)(void*), void* of);
    int (*join)(pthread_t thread, void** result);
  };
  struct Settings {
    unsigned helpers_max = 3;  // at most one less than the CPUs of the caller, and kHelpersMost
    std::size_t alone_below_bytes = 512 << 10;
    std::size_t share_bytes = 256 << 10;
    std::optional<Stores> stores{};   // none: measured
    bool measures_threads = false;    // else helpers_max of them help
    bool helpers_share_cpus = false;  // for tests: helpers_max of them, however few CPUs there are
    Threads threads{};                // none: there are no helpers
  };

  constexpr CopyCrew() = default;
  constexpr explicit CopyCrew(const Settings& settings) : settings_(settings) {}
  CopyCrew(const CopyCrew&) = delete;
  CopyCrew& operator=(const CopyCrew&) = delete;

  // Before the first copy.
  void configure(const Settings& settings) { settings_ = settings; }

  // Returns when every byte is copied. False: some of the guarded side was not there. Any number of threads may copy at
  // the same time. The two sides do not overlap.
  bool copy(const Side& to, const ConstSide& from, const Box& box, Direction direction,
            Guarded guarded = Guarded::neither, Helped helped = Helped::yes);

  // When exit begins: the helpers end. For good, in a child that is forked later, too.
  void stop();

  StoresFigures stores_figures(Direction direction);
  unsigned helpers();
  // The time of all threads for copies of this process so far, added up.
  std::uint64_t busy_ns() const { return busy_ns_.load(std::memory_order_relaxed); }

  // A child has no helpers at first, and what other threads were copying is not its concern.
  void before_fork() { lock_.lock_for_fork(); }
  void after_fork_in_parent() { lock_.unlock_after_fork(); }
  void after_fork_in_child();

 private:
  // A copying thread's job, as long as `ticket` is that thread's. In a child that a signal handler forked during the
  // copy it no longer is.
  struct alignas(64) Job {
    std::atomic<std::uint64_t> ticket{0};
    std::atomic<std::size_t> next{0};  // share to claim
    std::atomic<std::uint32_t> helpers{0};
    std::atomic<bool> owner_sleeps{false};
    std::atomic<bool> failed{false};  // a share: the others need not be copied
    unsigned helpers_max = 0;
    Stores stores = Stores::cached;
    Shares shares;
  };
  struct Begun {
    Job* job = nullptr;
    std::uint64_t ticket = 0;
    StoresChoice::Next run{};
    WorkersChoice* workers = nullptr;  // null: they are not measured now
    WorkersChoice::Next threads{};
    unsigned helpers_wanted = 0;
    bool helpers_missing = false;
  };
  struct Helper;
  static constexpr std::size_t kJobs = 8;
  static constexpr unsigned kCopiesAfterARefusal = 256;

  WorkersChoice& workers_of(const Shares& shares, Direction direction);
  void choose_helpers(Begun& begun, const Shares& shares, Direction direction, unsigned most);
  bool copy_large(const Shares& shares, Direction direction);
  Begun begin(const Shares& shares, Direction direction);
  bool moves_to(const CpuMask& mask);
  static void copy_share(Job& job, const Shares& shares, std::size_t share, Stores stores);
  void copy_shares(Job& job, const Shares& shares, Stores stores);
  enum class Finished { copied, failed, not_ours };
  Finished finish(Job& job, std::uint64_t ticket);
  void post(int helpers);

  void start_helpers(unsigned wanted);
  bool start_helper();
  void help();
  Job* join(Helper& helper);
  void leave(Job& job);
  void wait_for_work(std::uint32_t seen, bool has_just_worked);

  Settings settings_{};
  Lock lock_{};
  std::atomic<std::uint32_t> posted_{0};  // counts; what helpers sleep on
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  Job jobs_[kJobs]{};

  // Under the lock. While a job runs, the mask stays as it is.
  CpuMask mask_{};
  std::uint64_t mask_number_ = 0, last_ticket_ = 0;
  bool starting_ = false;
  unsigned copies_to_wait_ = 0;  // after the system refused a thread
  unsigned helper_count_ = 0;
  pthread_t helpers_[kHelpersMost]{};
  StoresChoice choices_[2]{};
  WorkersChoice workers_[2][2]{};  // by direction; guarded or not

  std::atomic<std::uint64_t> busy_ns_{0};
};

}  // namespace cistern::staging
