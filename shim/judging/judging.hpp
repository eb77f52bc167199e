// Judges live memory: a copy of the process is taken (judged_copy/memory_copy.hpp), and in it pointers are followed
// from its mappings (stats/leaks/judge.hpp). What was found is asked for by process/standings.hpp.
//
// Room: which live memory the program can still reach, judged in a copy of the process.
// May include: pool/base, pool/heap, stats, stats/leaks, stats/python, shim/process, shim/judged_copy.
#pragma once
#include <cstddef>

namespace cistern {

// What was found holds still while one lives. Other threads wait, but not for ever: a report asks the dynamic linker,
// whose lock may be held by a thread that waits here. Whoever has waited too long does without a judgement, and so does
// a report that foreign code asks for in the midst of this thread's.
class JudgementHeld {
 public:
  JudgementHeld();
  ~JudgementHeld();
  JudgementHeld(const JudgementHeld&) = delete;
  JudgementHeld& operator=(const JudgementHeld&) = delete;
  // For a report while the program runs. What of the calling thread's stack is in use begins at `stack_in_use`; below
  // it dead frames lie. What the end found stays.
  void judge_now(const void* stack_in_use);
  // The report shows what is live, unjudged; what the end found stays.
  void judge_nothing();

 private:
  friend void judge_at_end(const void* stack_in_use);
  const bool is_ours_;
};

// For the end of the process, done once, as early as somebody asks.
void judge_at_end(const void* stack_in_use);
// This thread is in the midst of a report.
bool judgement_is_held_here();

// A stack of our own that the report runs on: what lies there is none of the program's.
void note_own_stack(const void* first, std::size_t bytes);
// Whoever walks such a stack takes the frame of the code that changed to it for a part of it: so many zeros lie above
// what is used, and end the walk.
constexpr std::size_t kZerosAboveOwnStack = 4096;

// A thread of our own that waits: the program has nothing in its registers.
void note_own_thread(int id);

// What the parent found is not the child's.
void judging_after_fork_in_child();

// The frame that asks, with what its callers have in registers.
[[gnu::always_inline]] inline const void* stack_in_use() {
  __builtin_unwind_init();
  const void* at;
#if defined(__x86_64__)
  asm volatile("mov %%rsp, %0" : "=r"(at));
#elif defined(__aarch64__)
  asm volatile("mov %0, sp" : "=r"(at));
#endif
  return at;
}

}  // namespace cistern
