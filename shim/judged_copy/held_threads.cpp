// See held_threads.hpp. One at a time: who judges holds a lock.
#include "shim/judged_copy/held_threads.hpp"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <climits>
#include <cstdint>
#include <iterator>
#include <span>

#include "pool/base/system_call.hpp"
#include "shim/judged_copy/other_threads.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/small_file.hpp"

namespace cistern {
namespace {

using SetAction = int (*)(int, const struct sigaction*, struct sigaction*);

constexpr timespec kTick{0, 200'000};
constexpr int kTicksToAnswer = 500;  // 100 ms

constinit std::atomic<std::uint32_t> holding{0};  // 1: who is in the handler stays there
constinit std::atomic<unsigned> arrived{0}, left{0};
constinit std::span<OtherThread> asked{};

std::uintptr_t word(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

void stay(int) {
  const int error = errno;
  const auto id = static_cast<int>(system_call(SYS_gettid));
  for (OtherThread& thread : asked)
    if (thread.id == id) {
      thread.stack = word(__builtin_frame_address(0));
      thread.thread_pointer = word(__builtin_thread_pointer());
      thread.is_complete = true;
    }
  arrived.fetch_add(1);
  while (holding.load()) system_call(SYS_futex, word(&holding), FUTEX_WAIT_PRIVATE, 1, 0);
  left.fetch_add(1);
  errno = error;
}

bool blocks(int thread, int signal) {
  FilePath path("/proc/self/task/");
  char digits[16];
  path.add(
      {digits, static_cast<std::size_t>(std::to_chars(std::begin(digits), std::end(digits), thread).ptr - digits)});
  path.add("/status");
  const SmallFile<4096> status(path.text());
  const char* const mask = strstr(status.text(), "SigBlk:\t");
  std::uint64_t blocked = ~std::uint64_t{0};
  if (mask) std::from_chars(mask + 8, mask + 24, blocked, 16);
  return blocked >> (signal - 1) & 1;
}

SetAction real_sigaction() { return reinterpret_cast<SetAction>(next_definition("sigaction")); }

// One that the program does nothing with.
int unused_signal(SetAction set_action) {
  for (int signal = SIGRTMAX; signal >= SIGRTMIN; --signal) {
    struct sigaction entry;
    if (set_action(signal, nullptr, &entry) == 0 && !(entry.sa_flags & SA_SIGINFO) && entry.sa_handler == SIG_DFL)
      return signal;
  }
  return 0;
}

}  // namespace

void HeldThreads::hold(OtherThreads& threads) {
  const SetAction set_action = real_sigaction();
  const int signal = set_action ? unused_signal(set_action) : 0;
  if (!signal) return;
  struct sigaction entry {};
  entry.sa_handler = stay;
  entry.sa_flags = SA_RESTART | SA_ONSTACK;
  sigfillset(&entry.sa_mask);
  if (set_action(signal, &entry, nullptr) != 0) return;
  signal_ = signal;
  arrived = left = 0;
  asked = threads.all();
  holding = 1;
  const auto send = [signal](int id) {
    return system_call(SYS_tgkill, static_cast<std::uintptr_t>(getpid()), static_cast<std::uintptr_t>(id),
                       static_cast<std::uintptr_t>(signal)) == 0;
  };
  for (const OtherThread& thread : asked)
    if (thread.id && !thread.is_complete && !blocks(thread.id, signal) && send(thread.id)) ++count_;
  for (int i = 0; i < kTicksToAnswer && arrived.load() < count_; ++i) system_call(SYS_nanosleep, word(&kTick), 0);
}

// The handler stays: without it a signal that comes late would end the process, which is about to end anyway.
void HeldThreads::let_go() {
  if (!signal_) return;
  holding = 0;
  system_call(SYS_futex, word(&holding), FUTEX_WAKE_PRIVATE, INT_MAX);
  for (int i = 0; i < kTicksToAnswer && left.load() < count_; ++i) system_call(SYS_nanosleep, word(&kTick), 0);
  signal_ = 0;
}

}  // namespace cistern
