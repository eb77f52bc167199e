// See transfers.hpp. A transfer is a heap of copies and some threads that take them from it: begun when there is work,
// gone when there was none for a while. Records of transfers are used again, and never given back: a thread that ends
// may still look at one. Handles are numbers, as those of pools.
//
//   add  -> the heap -> a thread, unless as many run as may
//   work -> the copy of the highest priority, and small ones that continue it -> the kind, which makes it -> again
//   after a pause, if it failed -> done()
#include "shim/library/transfers.hpp"

#include <errno.h>
#include <linux/futex.h>
#include <linux/prctl.h>
#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <new>

#include "pool/base/blocked_signals.hpp"
#include "pool/base/forked.hpp"
#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/system_call.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/kind_memory.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/log.hpp"
#include "shim/process/lookup.hpp"
#include "stats/counters.hpp"
#include "stats/sink.hpp"

namespace cistern::library {
namespace {

constexpr unsigned kThreadsMax = 64, kThreadsUsually = 2;
constexpr std::uint64_t kMicrosecond = 1000, kMillisecond = 1000 * kMicrosecond, kSecond = 1000 * kMillisecond;
constexpr std::uint64_t kIdleNs = 100 * kMillisecond;

struct Copy {
  std::uint64_t number;
  cistern_copy_request what;
  const KindQueues* queues;  // whose it is

  friend bool operator<(const Copy& a, const Copy& b) {  // as std::push_heap has it: the first is the largest
    return a.what.priority != b.what.priority ? a.what.priority < b.what.priority : a.number > b.number;
  }
};

struct Result {
  std::uint64_t copy;
  cistern_status status;
  int code;
};

// A thread that waits for a change sleeps here.
class Bell {
 public:
  std::uint32_t seen() const { return rung_.load(std::memory_order_acquire); }
  void ring() {
    rung_.fetch_add(1, std::memory_order_release);
    system_call(SYS_futex, word(), FUTEX_WAKE_PRIVATE, INT32_MAX);
  }
  void wait(std::uint32_t seen, std::uint64_t at_most_ns) {
    const timespec most{static_cast<time_t>(at_most_ns / kSecond), static_cast<long>(at_most_ns % kSecond)};
    system_call(SYS_futex, word(), FUTEX_WAIT_PRIVATE, seen, reinterpret_cast<std::uintptr_t>(&most));
  }

 private:
  std::uintptr_t word() const { return reinterpret_cast<std::uintptr_t>(&rung_); }
  std::atomic<std::uint32_t> rung_{0};
};

struct Transfer {
  std::atomic<std::uint64_t> id{0};  // 0: not in use
  std::atomic<unsigned> callers{0};  // inside of a call
  Transfer* next_unused = nullptr;
  cistern_transfer_settings settings{};
  // The contexts that were current when it was made, of all queues that have such.
  struct Context {
    const KindQueues* of;
    void* context;
  };
  Vector<Context> contexts;

  Lock lock;  // for all below
  Bell bell;
  Vector<Copy> waiting;
  Vector<Result> failures;
  Vector<pthread_t> ended;  // to be joined
  bool is_held = false, ends = false;
  unsigned threads = 0, idle = 0, ending = 0;  // ending: they take no copy any more
  cistern_transfer_statistics counts{};
  std::uint64_t busy_since_ns = 0, busy_ns = 0;

  // Only the memory of its last user stays. `threads` of a parent process do not exist here.
  void begin_anew() {
    contexts.clear();
    waiting.clear();
    failures.clear();
    ended.clear();
    is_held = ends = false;
    threads = idle = ending = 0;
    counts = {};
    busy_since_ns = busy_ns = 0;
  }
};

constinit Lock transfers_lock;
constinit Vector<Transfer*>* all_transfers = nullptr;  // in use or not
constinit Transfer* unused = nullptr;
constinit std::uint64_t ids = 0, ids_of_parents = 0;

// The one whose copies this thread makes.
[[gnu::tls_model("initial-exec")]] constinit thread_local const Transfer* works_for = nullptr;

// Numbers of this copy of the library: another one counts from elsewhere.
std::uint64_t first_id() {
  return (reinterpret_cast<std::uintptr_t>(&ids) * 0x9E3779B97F4A7C15ull >> 24) << 20 & (~std::uint64_t{0} >> 4);
}

cistern_transfer* handle_of(std::uint64_t id) { return reinterpret_cast<cistern_transfer*>(id << 3 | 2); }

Transfer* find(const cistern_transfer* handle) {
  const auto word = reinterpret_cast<std::uintptr_t>(handle);
  const Locked hold(transfers_lock);
  if ((word & 7) != 2 || !all_transfers) return nullptr;
  for (Transfer* const transfer : *all_transfers)
    if (transfer->id.load() == word >> 3) {
      transfer->callers.fetch_add(1);
      return transfer;
    }
  return nullptr;
}

bool is_of_parent(const cistern_transfer* handle) {
  const auto word = reinterpret_cast<std::uintptr_t>(handle);
  return (word & 7) == 2 && word >> 3 > first_id() && word >> 3 <= ids_of_parents;
}

// Around each call: the transfer is not destroyed meanwhile. Null and a line: there is none.
class TransferInCall {
 public:
  TransferInCall(const char* api, const cistern_transfer* handle) : transfer_(find(handle)) {
    native = 0;
    if (transfer_) return;
    StringSink line;
    line.print("{}({}): no transfer, or destroyed already; refused", api, static_cast<const void*>(handle));
    warn_line(line.text());
  }
  ~TransferInCall() {
    if (!transfer_) return;
    transfer_->callers.fetch_sub(1);
    transfer_->bell.ring();
  }
  TransferInCall(const TransferInCall&) = delete;
  TransferInCall& operator=(const TransferInCall&) = delete;
  explicit operator bool() const { return transfer_; }
  Transfer* operator->() const { return transfer_; }
  Transfer& operator*() const { return *transfer_; }

 private:
  Transfer* const transfer_;
};

// --- A copy
// `visit(const KindQueues&)`, in the order in which they are asked (kind_memory.hpp), until it answers true.
template <class Visit>
void visit_queues(Visit visit) {
  for (std::size_t i = kinds().size(); i-- > 0;)
    for (const KindMemory* memory : kinds()[i]->memory)
      if (memory->queues && visit(*memory->queues)) return;
}

// Null: no kind has it.
const KindQueues* queues_of(const cistern_copy_request& what) {
  const KindQueues* found = nullptr;
  visit_queues([&](const KindQueues& queues) {
    if (queues.is_theirs(what)) found = &queues;
    return found != nullptr;
  });
  return found;
}

// Asks drivers.
Vector<Transfer::Context> current_contexts() {
  Vector<Transfer::Context> contexts;
  visit_queues([&](const KindQueues& queues) {
    const bool is_noted = std::any_of(contexts.begin(), contexts.end(),
                                      [&](const Transfer::Context& noted) { return noted.of == &queues; });
    if (!is_noted && queues.current_context) contexts.push_back({&queues, queues.current_context()});
    return false;
  });
  return contexts;
}

// The state that a thread has with each kind while it works for a transfer.
class AtWork {
 public:
  explicit AtWork(const Transfer& of) : of_(of) {}
  ~AtWork() {
    for (CopyThread& one : all_)
      if (one.queues->end_thread) one.queues->end_thread(one);
  }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

  CopyThread& with(const KindQueues& queues) {
    for (CopyThread& one : all_)
      if (one.queues == &queues) return one;
    void* context = nullptr;
    for (const Transfer::Context& noted : of_.contexts)
      if (noted.of == &queues) context = noted.context;
    all_.push_back({&queues, context, of_.settings.device});
    return all_.back();
  }

 private:
  const Transfer& of_;
  Vector<CopyThread> all_;
};

Result make(const Copy& copy, AtWork& at_work) {
  native = 0;
  const cistern_status status = copy.queues->make_copy(at_work.with(*copy.queues), copy.what);
  return {copy.number, status, native};
}

// Whether the next attempt would give the same answer.
bool is_final(const Copy& copy, const Result& result) {
  return result.status == CISTERN_OK || result.status == CISTERN_NO_DRIVER || copy.queues->is_final(result.code);
}

// False: the transfer ends meanwhile.
bool pause(Transfer& transfer, unsigned attempt) {
  const std::uint64_t first =
      (transfer.settings.pause_microseconds ? transfer.settings.pause_microseconds : 1000) * kMicrosecond;
  const std::uint64_t until_ns = nanoseconds_since_start() + std::min(kSecond, first << std::min(attempt, 20u));
  for (std::uint64_t now = nanoseconds_since_start(); now < until_ns; now = nanoseconds_since_start()) {
    const std::uint32_t seen = transfer.bell.seen();
    {
      const Locked hold(transfer.lock);
      if (transfer.ends) return false;
    }
    transfer.bell.wait(seen, until_ns - now);
  }
  return true;
}

Result make_with_retries(Transfer& transfer, const Copy& copy, AtWork& at_work) {
  Result result = make(copy, at_work);
  for (unsigned i = 0; i < transfer.settings.retries && !is_final(copy, result) && pause(transfer, i); ++i) {
    {
      const Locked hold(transfer.lock);
      ++transfer.counts.retried;
    }
    result = make(copy, at_work);
  }
  return result;
}

// --- Small copies that lie one behind the other are made as one
constexpr std::size_t kSmallMax = 64 << 10, kTogetherMax = 4 << 20;

const void* behind(const void* begin, std::size_t bytes) { return static_cast<const char*>(begin) + bytes; }

bool continues(const Copy& before, const Copy& after) {
  const cistern_copy_request &a = before.what, &b = after.what;
  if (before.queues != after.queues || a.priority != b.priority || a.bytes > kSmallMax || b.bytes > kSmallMax ||
      a.buffer != b.buffer)
    return false;
  if (!a.buffer) return behind(a.target, a.bytes) == b.target && behind(a.source, a.bytes) == b.source;
  return a.queue == b.queue && a.to_device == b.to_device && behind(a.host, a.bytes) == b.host &&
         a.offset + a.bytes == b.offset;
}

Copy take_first(Transfer& transfer) {
  std::pop_heap(transfer.waiting.begin(), transfer.waiting.end());
  const Copy first = transfer.waiting.back();
  transfer.waiting.pop_back();
  return first;
}

// One of them may read what another one writes: as one they would not.
bool are_apart(const cistern_copy_request& first, std::size_t bytes) {
  if (first.buffer) return true;
  const auto target = reinterpret_cast<std::uintptr_t>(first.target);
  const auto source = reinterpret_cast<std::uintptr_t>(first.source);
  return target + bytes <= source || source + bytes <= target;
}

// Under the lock, with one waiting at least.
void take_with_what_continues_it(Transfer& transfer, Vector<Copy>* copies) {
  copies->assign(1, take_first(transfer));
  std::size_t bytes = copies->front().what.bytes;
  while (!transfer.waiting.empty() && continues(copies->back(), transfer.waiting.front())) {
    bytes += transfer.waiting.front().what.bytes;
    if (bytes > kTogetherMax || !are_apart(copies->front().what, bytes)) return;
    copies->push_back(take_first(transfer));
  }
}

// Addresses that follow each other may be of two blocks, which a driver does not copy as one: then each goes by itself.
bool make_as_one(const Vector<Copy>& copies, AtWork& at_work) {
  Copy all = copies.front();
  all.what.bytes = 0;
  for (const Copy& copy : copies) all.what.bytes += copy.what.bytes;
  return make(all, at_work).status == CISTERN_OK;
}

// --- A thread. The transfer's lock guards the thread's state.
bool next_copies(Transfer& transfer, Vector<Copy>* copies) {
  const std::uint64_t idle_since_ns = nanoseconds_since_start();
  for (;;) {
    const std::uint32_t seen = transfer.bell.seen();
    {
      const Locked hold(transfer.lock);
      if (!transfer.ends && !transfer.is_held && !transfer.waiting.empty()) {
        take_with_what_continues_it(transfer, copies);
        if (!transfer.counts.running++) transfer.busy_since_ns = nanoseconds_since_start();
        transfer.counts.running_at_once = std::max(transfer.counts.running_at_once, transfer.counts.running);
        return true;
      }
      const bool waits = transfer.is_held && !transfer.waiting.empty();
      const std::uint64_t idle_ns = nanoseconds_since_start() - idle_since_ns;
      if (transfer.ends || (!waits && idle_ns >= kIdleNs)) {
        --transfer.threads;
        ++transfer.ending;
        return false;
      }
      ++transfer.idle;
    }
    transfer.bell.wait(seen, kIdleNs);
    const Locked hold(transfer.lock);
    --transfer.idle;
  }
}

void account(Transfer& transfer, const Copy& copy, const Result& result) {
  const Locked hold(transfer.lock);
  if (result.status == CISTERN_OK) {
    ++transfer.counts.done;
    transfer.counts.bytes_done += copy.what.bytes;
  } else {
    ++transfer.counts.failed;
    transfer.failures.push_back(result);
  }
}

void make_all(Transfer& transfer, const Vector<Copy>& copies, AtWork& at_work) {
  const std::uint64_t id = transfer.id.load();
  const auto& settings = transfer.settings;
  const bool as_one = copies.size() > 1 && make_as_one(copies, at_work);
  for (const Copy& copy : copies) {
    const Result result = as_one ? Result{copy.number, CISTERN_OK, 0} : make_with_retries(transfer, copy, at_work);
    if (settings.done) settings.done(handle_of(id), copy.number, result.status, result.code, settings.user);
    account(transfer, copy, result);
  }
  const Locked hold(transfer.lock);
  if (as_one) transfer.counts.merged += copies.size() - 1;
  if (!--transfer.counts.running) transfer.busy_ns += nanoseconds_since_start() - transfer.busy_since_ns;
}

void* work(void* of) {
  auto& transfer = *static_cast<Transfer*>(of);
  system_call(SYS_prctl, PR_SET_NAME, reinterpret_cast<std::uintptr_t>("cistern-transf"));
  let_faults_through();
  works_for = &transfer;
  {
    AtWork at_work(transfer);
    Vector<Copy> copies;
    while (next_copies(transfer, &copies)) {
      make_all(transfer, copies, at_work);
      transfer.bell.ring();
    }
  }
  {
    const pthread_t self = pthread_self();
    const Locked hold(transfer.lock);
    --transfer.ending;
    transfer.ended.push_back(self);
  }
  transfer.bell.ring();
  return nullptr;
}

// The functions that a call of the program's would reach; not linked to, as most processes start no thread of ours.
void join_ended(Transfer& transfer) {
  Vector<pthread_t> ended;
  {
    const Locked hold(transfer.lock);
    ended.swap(transfer.ended);
  }
  if (ended.empty()) return;
  const auto join = reinterpret_cast<decltype(&pthread_join)>(first_definition("pthread_join"));
  for (const pthread_t thread : ended)
    if (join) join(thread, nullptr);
}

bool begin_thread(Transfer& transfer) {
  join_ended(transfer);
  const auto create = reinterpret_cast<decltype(&pthread_create)>(first_definition("pthread_create"));
  const SignalsBlocked blocked;  // our threads must not handle the program's signals
  pthread_t thread;
  native = create ? create(&thread, nullptr, work, &transfer) : ENOSYS;
  return !native;
}

unsigned threads_max(const Transfer& transfer) {
  return transfer.settings.copies_at_once ? transfer.settings.copies_at_once : kThreadsUsually;
}

// One more if there is work for it. False: there is none at all that could do it.
bool have_a_thread(Transfer& transfer) {
  {
    const Locked hold(transfer.lock);
    const bool enough = transfer.waiting.size() <= transfer.idle || transfer.threads >= threads_max(transfer);
    if (transfer.is_held || enough) return true;
    ++transfer.threads;
  }
  if (begin_thread(transfer)) return true;
  const Locked hold(transfer.lock);
  return --transfer.threads != 0;
}

bool is_right(const cistern_copy_request& what) {
  if (!what.bytes) return false;
  return what.buffer ? what.queue && what.host : what.target && what.source;
}

// Waits until no thread of it runs any more and no other call is inside.
void wait_for_threads(Transfer& transfer) {
  constexpr unsigned kThisCall = 1;
  for (;;) {
    const std::uint32_t seen = transfer.bell.seen();
    {
      const Locked hold(transfer.lock);
      if (!transfer.threads && !transfer.ending && transfer.callers.load() == kThisCall) break;
    }
    transfer.bell.wait(seen, kSecond);
  }
  join_ended(transfer);
}

}  // namespace

cistern_status transfer_create(const cistern_transfer_settings* settings, cistern_transfer** handle) {
  native = 0;
  if (handle) *handle = nullptr;
  cistern_transfer_settings own{};
  if (!handle || !read_sized(own, settings, offsetof(cistern_transfer_settings, retries))) return CISTERN_INVALID;
  if (own.copies_at_once > kThreadsMax || own.device < 0) return CISTERN_INVALID;
  Vector<Transfer::Context> contexts = current_contexts();
  const Locked hold(transfers_lock);
  if (!all_transfers) all_transfers = new (internal_allocate(sizeof(Vector<Transfer*>))) Vector<Transfer*>;
  Transfer* transfer = unused;
  if (transfer) {
    unused = transfer->next_unused;
  } else {
    transfer = new (internal_allocate(sizeof(Transfer))) Transfer;
    all_transfers->push_back(transfer);
  }
  transfer->begin_anew();
  transfer->settings = own;
  transfer->contexts.swap(contexts);
  if (!ids) ids = first_id();
  transfer->id.store(++ids);
  *handle = handle_of(ids);
  return CISTERN_OK;
}

cistern_status transfer_destroy(cistern_transfer* handle) {
  native = 0;
  if (is_of_parent(handle)) return CISTERN_OK;  // it did not come along
  const TransferInCall transfer("cistern_transfer_destroy", handle);
  if (!transfer) return CISTERN_INVALID;
  if (works_for == &*transfer) return CISTERN_BUSY;
  {
    const Locked hold(transfer->lock);
    if (transfer->ends) return CISTERN_INVALID;  // another thread destroys it
    transfer->ends = true;
  }
  transfer->id.store(0);
  transfer->bell.ring();
  wait_for_threads(*transfer);
  const Locked hold(transfers_lock);
  transfer->next_unused = unused;
  unused = &*transfer;
  return CISTERN_OK;
}

cistern_status transfer_add(cistern_transfer* handle, const cistern_copy_request* request, uint64_t* number) {
  if (number) *number = 0;
  const TransferInCall transfer("cistern_transfer_add", handle);
  Copy copy{};
  if (!transfer || !read_sized(copy.what, request, offsetof(cistern_copy_request, queue)) || !is_right(copy.what))
    return CISTERN_INVALID;
  copy.queues = queues_of(copy.what);
  if (!copy.queues) return CISTERN_INVALID;
  {
    const Locked hold(transfer->lock);
    if (transfer->ends) return CISTERN_INVALID;
    copy.number = ++transfer->counts.copies;
    transfer->waiting.push_back(copy);
    std::push_heap(transfer->waiting.begin(), transfer->waiting.end());
  }
  if (number) *number = copy.number;
  transfer->bell.ring();
  if (have_a_thread(*transfer)) return CISTERN_OK;
  if (number) *number = 0;
  const Locked hold(transfer->lock);
  std::erase_if(transfer->waiting, [&](const Copy& other) { return other.number == copy.number; });
  std::make_heap(transfer->waiting.begin(), transfer->waiting.end());
  --transfer->counts.copies;
  return CISTERN_NO_MEMORY;
}

cistern_status transfer_hold(cistern_transfer* handle, int hold) {
  const TransferInCall transfer("cistern_transfer_hold", handle);
  if (!transfer) return CISTERN_INVALID;
  std::size_t waiting = 0;
  {
    const Locked held(transfer->lock);
    transfer->is_held = hold;
    waiting = hold ? 0 : std::min<std::size_t>(transfer->waiting.size(), threads_max(*transfer));
  }
  transfer->bell.ring();
  for (; waiting; --waiting)
    if (!have_a_thread(*transfer)) return CISTERN_NO_MEMORY;
  return CISTERN_OK;
}

cistern_status transfer_wait(cistern_transfer* handle, double seconds) {
  const TransferInCall transfer("cistern_transfer_wait", handle);
  if (!transfer) return CISTERN_INVALID;
  if (works_for == &*transfer) return CISTERN_BUSY;
  if (seconds != seconds) return CISTERN_INVALID;  // no number
  constexpr double kForEver = 1e9;
  const std::uint64_t begin_ns = nanoseconds_since_start();
  const double most = seconds < 0 || seconds > kForEver ? kForEver : seconds;
  const std::uint64_t until_ns = begin_ns + static_cast<std::uint64_t>(most * 1e9);
  for (;;) {
    const std::uint32_t seen = transfer->bell.seen();
    {
      const Locked hold(transfer->lock);
      if (transfer->ends) return CISTERN_INVALID;
      if (transfer->waiting.empty() && !transfer->counts.running)
        return transfer->failures.empty() ? CISTERN_OK : refused(transfer->failures.front().code);
    }
    const std::uint64_t now_ns = nanoseconds_since_start();
    if (now_ns >= until_ns) return CISTERN_BUSY;
    transfer->bell.wait(seen, std::min(until_ns - now_ns, kSecond));
  }
}

cistern_status transfer_next_failed(cistern_transfer* handle, uint64_t* copy, cistern_status* status,
                                    int* native_error) {
  if (copy) *copy = 0;
  if (status) *status = CISTERN_OK;
  if (native_error) *native_error = 0;
  const TransferInCall transfer("cistern_transfer_next_failed", handle);
  if (!transfer) return CISTERN_INVALID;
  const Locked hold(transfer->lock);
  if (transfer->failures.empty()) return CISTERN_EMPTY;
  const Result first = transfer->failures.front();
  transfer->failures.erase(transfer->failures.begin());
  if (copy) *copy = first.copy;
  if (status) *status = first.status;
  if (native_error) *native_error = first.code;
  return CISTERN_OK;
}

cistern_status transfer_get_statistics(cistern_transfer* handle, cistern_transfer_statistics* statistics) {
  const bool has_room = clear_sized(statistics);
  const TransferInCall transfer("cistern_transfer_get_statistics", handle);
  if (!transfer || !has_room) return CISTERN_INVALID;
  const Locked hold(transfer->lock);
  cistern_transfer_statistics all = transfer->counts;
  all.waiting = transfer->waiting.size();
  const std::uint64_t running_ns = all.running ? nanoseconds_since_start() - transfer->busy_since_ns : 0;
  all.seconds = static_cast<double>(transfer->busy_ns + running_ns) / 1e9;
  all.bytes_per_second = all.seconds > 0 ? static_cast<double>(all.bytes_done) / all.seconds : 0;
  write_sized(statistics, all);
  return CISTERN_OK;
}

void transfers_before_fork() {
  transfers_lock.lock_for_fork();
  if (all_transfers)
    for (Transfer* const transfer : *all_transfers) transfer->lock.lock_for_fork();
}

void transfers_after_fork_in_parent() {
  if (all_transfers)
    for (Transfer* const transfer : *all_transfers) transfer->lock.unlock_after_fork();
  transfers_lock.unlock_after_fork();
}

// Their threads are not here, nor their contexts: handles are out of use.
void transfers_after_fork_in_child() {
  set_in_child(works_for, nullptr);
  set_in_child(ids_of_parents, ids);
  set_in_child(unused, nullptr);
  if (all_transfers)
    for (Transfer* const transfer : *all_transfers) {
      transfer->id.store(0);
      transfer->callers.store(0);
      transfer->begin_anew();
      transfer->next_unused = unused;
      unused = transfer;
    }
  transfers_after_fork_in_parent();
}

}  // namespace cistern::library
