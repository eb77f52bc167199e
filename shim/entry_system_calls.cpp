// The exported prctl, capset, unshare and setns, and what the exported syscall (entry_syscall.S) leaves to a function.
// They see when the process sets a filter of system calls, whom it lets trace it, and when a thread of ours would be in
// the way. The call itself is passed on as it is.
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <atomic>

#include "shim/core/live.hpp"
#include "shim/judged_copy/other_threads.hpp"
#include "shim/lifecycle.hpp"
#include "shim/lifecycle_signals.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/system_filter.hpp"

// Where entry_syscall.S jumps to; null before the first start.
extern "C" {
[[gnu::visibility("hidden")]] constinit void* cistern_real_syscall = nullptr;
}

namespace {

using cistern::next_symbol;
using Word = unsigned long;
using Prctl = int (*)(int, Word, Word, Word, Word);
using Syscall = long (*)(long, Word, Word, Word, Word, Word, Word);

// PR_SET_SECCOMP and others: their header declares prctl otherwise than it is defined here.
constexpr int kSetSeccomp = 22, kSetTracer = 0x59616d61;
constexpr int kSetKeepCapabilities = 8, kSetSecureBits = 28;

// A child of vfork shares its parent's memory, but not the parent's filters. Asked before the call: afterwards the
// question itself might be filtered.
class Watched {
 public:
  explicit Watched(bool sets_filter)
      : matters_(sets_filter && !cistern::switched_off() && !cistern::system_calls_are_filtered() &&
                 cistern::in_own_process()) {
    if (matters_) cistern::leave_signals();
  }
  template <class Answer>
  Answer made(Answer answer) const {
    if (matters_ && answer == 0) cistern::note_system_filter();
    if (matters_ && answer != 0) cistern::watch_signals_again();
    return answer;
  }

 private:
  const bool matters_;
};

// The kernel has capabilities for each thread, and lets a process of one thread alone into another user namespace.
void leave_one_thread() {
  if (!cistern::switched_off() && !cistern::system_calls_are_filtered() && cistern::in_own_process())
    cistern::live::dismiss_thread();
}

Syscall real_syscall() {
  std::atomic_ref<void*> known(cistern_real_syscall);
  void* found = known.load(std::memory_order_relaxed);
  if (!found) known.store(found = next_symbol("syscall"), std::memory_order_relaxed);
  return reinterpret_cast<Syscall>(found);
}

bool sets_filter(long number, Word first) {
  if (number == SYS_prctl) return first == kSetSeccomp;
  return number == SYS_seccomp && (first == SECCOMP_SET_MODE_FILTER || first == SECCOMP_SET_MODE_STRICT);
}

[[gnu::constructor]] void find_syscall() { real_syscall(); }

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int prctl(int option, Word first, Word second, Word third, Word fourth) {
  static constinit std::atomic<Prctl> known{nullptr};
  Prctl real = known.load(std::memory_order_relaxed);
  if (!real) known.store(real = reinterpret_cast<Prctl>(next_symbol("prctl")), std::memory_order_relaxed);
  if (option == kSetKeepCapabilities || option == kSetSecureBits) leave_one_thread();
  const Watched watched(option == kSetSeccomp);
  const int answer = watched.made(real(option, first, second, third, fourth));
  if (option == kSetTracer && answer == 0) cistern::note_permitted_tracer(first);
  return answer;
}

[[gnu::visibility("default")]] int capset(void* header, const void* data) {
  leave_one_thread();
  return reinterpret_cast<int (*)(void*, const void*)>(next_symbol("capset"))(header, data);
}

[[gnu::visibility("default")]] int unshare(int flags) {
  if (flags & (CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM)) leave_one_thread();
  return reinterpret_cast<int (*)(int)>(next_symbol("unshare"))(flags);
}

// `type` 0: any.
[[gnu::visibility("default")]] int setns(int file, int type) {
  if (!type || type & (CLONE_NEWUSER | CLONE_NEWNS)) leave_one_thread();
  return reinterpret_cast<int (*)(int, int)>(next_symbol("setns"))(file, type);
}

[[gnu::visibility("hidden")]] long cistern_syscall(long number, Word first, Word second, Word third, Word fourth,
                                                   Word fifth, Word sixth) {
  const Watched watched(sets_filter(number, first));
  const long answer = watched.made(real_syscall()(number, first, second, third, fourth, fifth, sixth));
  if (number == SYS_prctl && first == kSetTracer && answer == 0) cistern::note_permitted_tracer(second);
  return answer;
}
}
