// What another thread does at the moment, as /proc/PID/task/ID/syscall says it, and whether a stop by ptrace changes
// what its call of the system answers.
#pragma once
#include <cstdint>
#include <string_view>

namespace cistern {

struct WaitingCall {
  static constexpr long kRuns = -1;  // or waits outside any call, for a page
  bool is_known = false;
  long number = kRuns;
  std::uintptr_t arguments[6] = {};
  std::uintptr_t stack = 0;  // 0: not told

  // A thread of the kernel's own that shares the process's memory, as io_uring has: in no program's code ever.
  bool is_kernels() const { return is_known && number != kRuns && !stack; }
};

// "running", "-1 SP PC" or "NUMBER A0 A1 A2 A3 A4 A5 SP PC".
WaitingCall parse_waiting_call(std::string_view line);

// A call that a stop lets answer EINTR, and that has done nothing then.
bool may_begin_again(long number);

// Whether its answer stays what it would have been: the call has done nothing yet, and begins anew afterwards. The
// calling process has the same open files.
bool answers_as_before(const WaitingCall& call);

}  // namespace cistern
