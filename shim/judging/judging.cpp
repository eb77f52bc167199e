// See judging.hpp: what the parent does, before and after the child.
#include "shim/judging/judging.hpp"

#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "pool/base/forked.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/page_size.hpp"
#include "pool/base/symbol_table.hpp"
#include "pool/base/system_call.hpp"
#include "shim/judging/child.hpp"
#include "shim/judging/plan.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/standings.hpp"
#include "shim/process/system_filter.hpp"
#include "stats/counters.hpp"
#include "stats/python/interpreter.hpp"

namespace cistern {
namespace {
using judging::address_of;
using judging::AddressRange;
using judging::Findings;
using judging::Plan;

// A sanitizer would report each word that the judge reads: it may have been freed, or another thread may write it.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constinit std::atomic<int> own_thread{0};

// Findings, targets, the picture's table, marks and the table of threads, one behind the other; marks are as many as
// there may be blocks.
class MemoryOfBoth {
 public:
  explicit MemoryOfBoth(const Vector<leaks::Target>& targets) {
    picture_bytes_ = 2 * host_pool::Picture::table_bytes();
    marks_ = picture_bytes_ / host_pool::Picture::kEntryBytes * (host_pool::kSliceBytes / host_pool::kGranule);
    targets_at_ = whole_pages(sizeof(Findings));
    picture_at_ = targets_at_ + whole_pages(targets.size() * sizeof(leaks::Target));
    marks_at_ = picture_at_ + whole_pages(picture_bytes_);
    threads_at_ = marks_at_ + whole_pages(marks_);
    threads_bytes_ = OtherThreads::table_bytes();
    bytes_ = threads_at_ + whole_pages(threads_bytes_);
    void* const memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    memory_ = static_cast<char*>(memory);
    new (memory_) Findings;
    std::copy(targets.begin(), targets.end(), reinterpret_cast<leaks::Target*>(memory_ + targets_at_));
    target_count_ = targets.size();
  }
  explicit operator bool() const { return memory_; }

  Findings& findings() { return *reinterpret_cast<Findings*>(memory_); }
  std::span<leaks::Target> targets() {
    return {reinterpret_cast<leaks::Target*>(memory_ + targets_at_), target_count_};
  }
  std::span<std::uint8_t> marks() { return {reinterpret_cast<std::uint8_t*>(memory_ + marks_at_), marks_}; }
  void* picture_table() { return memory_ + picture_at_; }
  std::size_t picture_bytes() const { return picture_bytes_; }
  void* threads_table() { return memory_ + threads_at_; }
  std::size_t threads_bytes() const { return threads_bytes_; }
  AddressRange range() const { return {address_of(memory_), address_of(memory_) + bytes_}; }

 private:
  char* memory_ = nullptr;
  std::size_t bytes_ = 0, picture_bytes_, marks_, targets_at_, picture_at_, marks_at_, threads_at_, threads_bytes_,
              target_count_ = 0;
};

bool is_on_alternate_stack() {
  stack_t stack;
  return system_call(SYS_sigaltstack, 0, reinterpret_cast<std::uintptr_t>(&stack)) == 0 &&
         (stack.ss_flags & SS_ONSTACK);
}

void hold_threads(void* context) {
  const Plan& plan = *static_cast<const Plan*>(context);
  if (!plan.may_stop || options().leak_threads == "unseen") return;
  plan.threads->stop();
  if (options().leak_threads == "hold") plan.held->hold(*plan.threads);
}
void let_threads_go(void* context) {
  const Plan& plan = *static_cast<const Plan*>(context);
  plan.threads->let_go();
  plan.held->let_go();
  plan.threads->look_again();
}

// When a Python program comes to its exit, the interpreter has freed its objects. What they had was in use until then,
// so freed ones count as long as their memory was not used again.
leaks::PythonIntegers python_integers() {
  constexpr std::uint32_t kWithTag = 0x030C'0000;
  const link_map* const python = first_module_with("PyLong_Type", main_module());
  if (!python) {
    // One that was loaded later, which a stack has shown. It may be gone by now, so nothing of it is called.
    const unsigned count = python::interpreter_count.load(std::memory_order_acquire);
    if (!count) return {};
    const python::Interpreter& loaded = python::interpreters[count - 1];
    return {address_of(loaded.integer_type), loaded.version >= kWithTag, false};
  }
  const SymbolTable symbols(*python);
  const auto* const version = static_cast<const std::uint32_t*>(symbols.address_of("Py_Version"));
  const bool has_gil = !symbols.defines("_Py_MergeZeroLocalRefcount");
  const auto is_running = reinterpret_cast<int (*)()>(symbols.address_of("Py_IsInitialized"));
  return {address_of(symbols.address_of("PyLong_Type")), version && *version >= kWithTag,
          has_gil && is_running && is_running()};
}

constexpr std::uint64_t kPatienceNs = 10'000'000'000;  // beyond what judging may take
// The times of blocks are coarse: of those that were born before this all have an earlier one.
std::uint64_t next_coarse_moment() {
  constexpr timespec kTick{0, 500'000};
  constexpr int kTicks = 40;  // the clock advances every 1 to 10 ms
  const std::uint64_t now_ns = coarse_nanoseconds_since_start();
  if (!gpu_used()) return now_ns;
  for (int i = 0; i < kTicks && coarse_nanoseconds_since_start() == now_ns; ++i)
    system_call(SYS_nanosleep, address_of(&kTick), 0);
  return coarse_nanoseconds_since_start();
}

// Nobody is kept waiting for what cannot be done in time: of small blocks no more than one in so many nanoseconds was
// ever looked at.
bool blocks_are_too_many(std::uint64_t limit_ns) {
  constexpr std::uint64_t kNsForBlock = 40, kLookedAtBytes = std::uint64_t{256} << 20;
  const Kind& host = *kinds().front();
  if (!host.live_bytes || host.live_bytes() < kLookedAtBytes || host.pools.empty()) return false;
  return host.pools.front().figures(nullptr).live_blocks * kNsForBlock > limit_ns;
}

constinit LongLock judgement_lock;
constinit bool judged_at_end = false;
constinit bool was_judged = false;
constinit AddressRange earlier{};  // memory of the last judgement
constinit AddressRange own_stack{};

void drop_earlier() {
  set_judgement({});
  if (earlier.first) munmap(reinterpret_cast<void*>(earlier.first), earlier.end - earlier.first);
  earlier = {};
}

[[gnu::cold]] void judge_live_memory(const void* stack_in_use, bool at_end) {
  const std::uint64_t limit_ns = options().judging_limit();
  was_judged = true;
  drop_earlier();
  if (!limit_ns) return;
  Judgement judgement;
  if (kSanitized || system_calls_are_filtered()) {
    judgement.why_not = kSanitized ? "Cistern was built with a sanitizer" : reason_of(CopyEnd::filtered);
    return set_judgement(judgement);
  }
  if (blocks_are_too_many(limit_ns)) {
    judgement.why_not = reason_of(CopyEnd::no_time);
    return set_judgement(judgement);
  }
  const std::uint64_t began_ns = nanoseconds_since_start();
  judgement.listed_ns = next_coarse_moment();
  JudgedMemory memory;
  for (const Kind* kind : kinds())
    if (kind->add_judged) kind->add_judged(memory);
  memory.sort();
  MemoryOfBoth both(memory.targets());
  judgement.why_not = "the system has no memory for it";
  if (both) {
    earlier = both.range();
    OtherThreads threads(both.threads_table(), both.threads_bytes());
    // A driver's threads mostly wait.
    constexpr int kTries = 20;
    threads.look(own_thread.load(std::memory_order_relaxed), !at_end && gpu_used() ? kTries : 0);
    HeldThreads held;
    Plan plan{stack_in_use,
              static_cast<int>(system_call(SYS_gettid)),
              this_process(),
              is_on_alternate_stack(),
              at_end,
              &threads,
              memory.handed_out(),
              memory.unused(),
              &both.findings(),
              both.targets(),
              both.marks(),
              both.picture_table(),
              both.picture_bytes(),
              both.range(),
              &held,
              own_stack,
              python_integers()};
    const CopyEnd end =
        work_in_copy({judging::judge_in_copy, &plan, limit_ns, judging::child_bytes(), hold_threads, let_threads_go});
    const Findings& findings = both.findings();
    judgement.is_known = end == CopyEnd::done && findings.is_complete;
    judgement.why_not = judgement.is_known     ? nullptr
                        : end == CopyEnd::done ? findings.cannot_read ? "the process has no free file descriptor"
                                                                      : "the process has too many mappings"
                                               : reason_of(end);
    judgement.unseen_threads = findings.unseen_threads;
    judgement.stopped_ns = threads.stopped_ns();
    judgement.unreadable_bytes = findings.unreadable_bytes;
    judgement.bytes_read = findings.bytes_read;
    judgement.memory_bytes = findings.heap.numbers() + both.picture_bytes() + leaks::Judge::scratch_bytes();
    judgement.targets = both.targets();
    judgement.heap = &findings.heap;
    judgement.marks = both.marks();
  }
  judgement.took_ns = nanoseconds_since_start() - began_ns;
  set_judgement(judgement);
}

}  // namespace

JudgementHeld::JudgementHeld() : is_ours_(judgement_lock.lock_within(options().judging_limit() + kPatienceNs)) {
  if (is_ours_) set_judging_thread(__builtin_thread_pointer());
}
JudgementHeld::~JudgementHeld() {
  if (!is_ours_) return;
  set_judging_thread(nullptr);
  judgement_lock.unlock();
}

void JudgementHeld::judge_now(const void* stack_in_use) {
  if (is_ours_ && !judged_at_end) judge_live_memory(stack_in_use, false);
}

void JudgementHeld::judge_nothing() {
  if (is_ours_ && !judged_at_end) set_judgement({});
}

void judge_at_end(const void* stack_in_use) {
  const JudgementHeld held;
  if (!held.is_ours_ || judged_at_end) return;
  judge_live_memory(stack_in_use, true);
  judged_at_end = true;
}

bool judgement_is_held_here() { return judgement_lock.held_here(); }

void note_own_thread(int id) { own_thread.store(id, std::memory_order_relaxed); }

void note_own_stack(const void* first, std::size_t bytes) {
  own_stack = {address_of(first), address_of(first) + bytes};
}

// Another thread may have held it.
void judging_after_fork_in_child() {
  if (judgement_lock.held_elsewhere()) {
    new (&judgement_lock) LongLock;
    set_judging_thread(nullptr);
  }
  set_in_child(judged_at_end, false);
  if (!was_judged) return;
  was_judged = false;
  earlier = {};
  set_judgement({});
}

}  // namespace cistern
