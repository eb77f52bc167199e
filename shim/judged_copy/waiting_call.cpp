// See waiting_call.hpp. Measured on Linux 6.18 for each call of the list: what a thread that is stopped in it has as
// its answer. Those with EINTR begin again when other_threads.cpp says so, which it can on x86-64 only.
#include "shim/judged_copy/waiting_call.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "pool/base/file_status.hpp"
#include "pool/base/system_call.hpp"

namespace cistern {
namespace {

#if defined(__x86_64__)
constexpr bool kBeginsAgain = true;
#else
constexpr bool kBeginsAgain = false;
#endif

// The kernel restarts them, with what is left of their time.
constexpr long kRestarted[] = {
#if defined(__x86_64__)
    SYS_poll,  SYS_select, SYS_pause,
#endif
    SYS_futex, SYS_ppoll,  SYS_pselect6, SYS_nanosleep, SYS_clock_nanosleep, SYS_rt_sigsuspend,   SYS_restart_syscall,
    SYS_wait4, SYS_waitid, SYS_flock,    SYS_msgrcv,    SYS_msgsnd,          SYS_mq_timedreceive, SYS_mq_timedsend};

// EINTR.
constexpr long kBegunAgain[] = {
#if defined(__x86_64__)
    SYS_epoll_wait,
#endif
    SYS_epoll_pwait, SYS_rt_sigtimedwait, SYS_semop, SYS_semtimedop, SYS_accept, SYS_accept4};

template <std::size_t count>
bool has(const long (&numbers)[count], long number) {
  return std::find(numbers, numbers + count, number) != numbers + count;
}

// A terminal that gives a whole line, or each character at once.
bool is_plain_terminal(int file) {
  struct {
    tcflag_t input, output, control, local;
    cc_t line, characters[19];
  } state;
  constexpr unsigned long kGetAttributes = 0x5401;  // TCGETS
  if (system_call(SYS_ioctl, static_cast<std::uintptr_t>(file), kGetAttributes,
                  reinterpret_cast<std::uintptr_t>(&state)) < 0)
    return false;
  return (state.local & ICANON) || state.characters[VMIN] <= 1;
}

// With SO_RCVLOWAT it may have a part of what it waits for.
bool receives_at_once(int file) {
  int least = 0, bytes = sizeof least;
  const long answer = system_call(SYS_getsockopt, static_cast<std::uintptr_t>(file), SOL_SOCKET, SO_RCVLOWAT,
                                  reinterpret_cast<std::uintptr_t>(&least), reinterpret_cast<std::uintptr_t>(&bytes));
  return kBeginsAgain && answer == 0 && least <= 1;
}

// Reading waits only while it has nothing yet.
bool reads_at_once(int file) {
  struct stat status;
  if (status_of_file(file, status)) return false;
  if (S_ISFIFO(status.st_mode)) return true;
  if (S_ISSOCK(status.st_mode)) return receives_at_once(file);
  char path[48] = "/proc/self/fd/", target[48];
  *std::to_chars(path + 14, std::end(path) - 1, file).ptr = '\0';
  const long bytes =
      system_call(SYS_readlinkat, static_cast<std::uintptr_t>(AT_FDCWD), reinterpret_cast<std::uintptr_t>(path),
                  reinterpret_cast<std::uintptr_t>(target), sizeof target);
  if (bytes <= 0) return false;
  const std::string_view name(target, static_cast<std::size_t>(bytes));
  if (name.starts_with("/dev/pts/") || name.starts_with("/dev/tty")) return is_plain_terminal(file);
  constexpr std::string_view kEvents[] = {"anon_inode:[eventfd]", "anon_inode:[timerfd]", "anon_inode:[signalfd]",
                                          "anon_inode:inotify", "anon_inode:[inotify]"};
  return std::find(std::begin(kEvents), std::end(kEvents), name) != std::end(kEvents);
}

}  // namespace

WaitingCall parse_waiting_call(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  WaitingCall call;
  if (line == "running") {
    call.is_known = true;
    return call;
  }
  const char *at = line.data(), *const end = at + line.size();
  const auto number = std::from_chars(at, end, call.number);
  if (number.ec != std::errc()) return {};
  at = number.ptr;
  std::uintptr_t words[8];
  std::size_t count = 0;
  while (end - at > 3 && at[0] == ' ' && at[1] == '0' && at[2] == 'x' && count < std::size(words)) {
    const auto word = std::from_chars(at + 3, end, words[count], 16);
    if (word.ec != std::errc()) return {};
    at = word.ptr;
    ++count;
  }
  const bool in_call = call.number != WaitingCall::kRuns;
  if (at != end || count != (in_call ? std::size_t{8} : std::size_t{2})) return {};
  if (in_call) std::copy(words, words + 6, call.arguments);
  call.stack = words[count - 2];
  call.is_known = true;
  return call;
}

// Sockets with a time-out answer so, and what reads them.
bool may_begin_again(long number) {
  constexpr long kByArguments[] = {SYS_read,    SYS_readv,          SYS_recvfrom,
                                   SYS_recvmsg, SYS_io_uring_enter, SYS_io_getevents};
  return has(kBegunAgain, number) || has(kByArguments, number);
}

bool answers_as_before(const WaitingCall& call) {
  if (!call.is_known) return false;
  if (call.number == WaitingCall::kRuns || has(kRestarted, call.number)) return true;
  const auto file = static_cast<int>(call.arguments[0]);
  const auto asks_for_all = [&call](int flags_at) { return call.arguments[flags_at] & MSG_WAITALL; };
  switch (call.number) {
    case SYS_read:
    case SYS_readv:
      return reads_at_once(file);
    case SYS_recvfrom:
      return !asks_for_all(3) && receives_at_once(file);
    case SYS_recvmsg:
      return !asks_for_all(2) && receives_at_once(file);
    case SYS_io_uring_enter:
      return kBeginsAgain && call.arguments[1] == 0 && call.arguments[2] <= 1;  // else a part may have been done
    case SYS_io_getevents:
      return kBeginsAgain && call.arguments[1] <= 1;
    default:
      return kBeginsAgain && has(kBegunAgain, call.number);
  }
}

}  // namespace cistern
