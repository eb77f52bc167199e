// Facts from /proc about other processes: those that started this one. There are none without /proc, where it is that
// of another namespace, or where the processes are another user's.
#pragma once
#include <sys/types.h>

#include <cstdint>

#include "pool/base/internal_memory.hpp"
#include "shim/process/small_file.hpp"

namespace cistern {

// Processes are named by their numbers in /proc, and this one by this constant. Where /proc is that of an outer
// namespace, this process has another number there, and its own number names another process.
constexpr pid_t kThisProcess = -1;
// 0: not to be had.
pid_t own_number_in_proc();

// The path of a file in its folder in /proc.
FilePath path_about(pid_t process, std::string_view file);
// The contents of that file; empty: not known.
String text_about(pid_t process, const char* file, int* error = nullptr);
// As it was when its program began, each entry ended by a zero byte.
String environment_of(pid_t process, int* error = nullptr);
// The names under which its program is known: the file's, and the one that the process has, which is a script's own.
struct ProgramNames {
  String file, process;
};
ProgramNames program_of(pid_t process);

// The value that the variable has in such an environment, or nothing.
std::string_view value_in(std::string_view environment, std::string_view name);
// Numbers, each followed by a space.
String children_of(pid_t process);
// 0: not to be had. Allocates nothing, and neither do those below.
pid_t parent_of(pid_t process);
// The process that started it, the one that started that, and so on, as far as /proc shows them. The walk ends, even if
// /proc shows a circle.
class Starters {
 public:
  explicit Starters(pid_t process) : at_(parent_of(process)) {}
  explicit operator bool() const { return at_ > 0 && left_ > 0; }
  pid_t operator*() const { return at_; }
  void operator++() {
    at_ = parent_of(at_);
    --left_;
  }

 private:
  pid_t at_;
  int left_ = 64;
};

// By the system's clock, to a hundredth of a second, rounded down; programs that it became by exec do not count.
std::int64_t started_at_ns(pid_t process);
// The same in ticks since the system started, as proc(5) has it; 0: there is none of that number.
std::int64_t start_ticks(pid_t process);

}  // namespace cistern
