// The unwinder: return addresses of the calling thread's stack. Its own walk follows rows that it learns from the
// modules' unwind tables, some nanoseconds a frame whether code keeps frame pointers or not. What a row cannot say
// (code without tables, frames of signals) libunwind walks, when the system has it, else the libgcc that is linked in.
//
// Why a walk of our own: a stack of 25 frames that was seen before takes it 70 ns, libunwind's 190 and libgcc's 3,350
// (CPU time, Debian 12, the least of 20 times 2,000). And it runs inside malloc, where a stack that was not seen yet
// would have libunwind take the dynamic linker's lock and allocate.
//
// Room: stacks of the calling code, by tables that are read once.
// May include: pool/base, stats/python.
#pragma once

namespace cistern {

// Fills `frames`, innermost first, and returns how many there are; the first ones lie in the unwinder itself.
// Takes a lock of ours only for a return address that was not seen before; allocates nothing but such rows.
struct WalkEnd {
  bool by_rows = false;  // its own walk came through
  bool is_whole = true;  // as far as is known: it did not end at generated code, or at what is no frame
};
int unwind_stack(void** frames, int frames_max, WalkEnd* end = nullptr);

// Whether a handler of signals is on the stack that unwind_stack has just filled `frames` with.
bool passes_signal(void* const* frames, int count);

// The walk goes no further out than this function, which calls main: before that comes what starts every program. Its
// tables would be memory that the program does not touch otherwise. Null: there is none.
inline constinit const void* outermost_function = nullptr;

// Opens and warms up libunwind. It opens files and allocates: never inside malloc. Safe to call again. `look_up` is
// dlsym: the C library's own, where another is exported here.
using LookUp = void* (*)(void* handle, const char* name);
void prepare_unwinder(LookUp look_up);

// The others, for tests: libgcc's, and the walk alone, which returns -1 where it needs another.
int unwind_stack_with_libgcc(void** frames, int frames_max);
int unwind_stack_by_rows(void** frames, int frames_max, WalkEnd* end = nullptr);

void unwinder_before_fork();
void unwinder_after_fork();
// The dynamic linker's lock, which libunwind takes, may be held by a thread that the child does not have.
void unwinder_after_fork_in_child();

}  // namespace cistern
