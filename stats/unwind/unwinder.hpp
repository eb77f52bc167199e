// The unwinder: return addresses of the calling thread's stack. Its own walk follows rows that it learns from the
// modules' unwind tables, some nanoseconds a frame whether code keeps frame pointers or not. A stack with a row that it
// does not know (tables of an unusual shape) the libgcc walks that is linked in.
//
// Why a walk of our own: a stack of 25 frames that was seen before takes it 70 ns, libunwind's 190 and libgcc's 3,350
// (CPU time, Debian 12, the least of 20 times 2,000). It runs inside malloc, on stacks of any size: it takes 300 bytes,
// libgcc's 1.5 KiB. libunwind would take 5 KiB, the dynamic linker's lock and memory, and keep a pipe open by which it
// looks at addresses: when the program has closed that and has a file of that number, it would read and write there.
//
// Room: stacks of the calling code, by tables that are read once.
// May include: pool/base, stats/python.
#pragma once
#include <atomic>
#include <cstdint>

namespace cistern {

// Where a walk begins: at the call of the function that asks walk_start(), which keeps a frame pointer for that.
struct WalkStart {
  std::uintptr_t address, cfa, rbp;
};
[[gnu::always_inline]] inline WalkStart walk_start() {
  const auto* const frame = static_cast<const std::uintptr_t*>(__builtin_frame_address(0));
  const auto address = reinterpret_cast<std::uintptr_t>(__builtin_extract_return_addr(__builtin_return_address(0)));
#if defined(__x86_64__)
  return {address, reinterpret_cast<std::uintptr_t>(frame + 2), *frame};
#else
  return {address, reinterpret_cast<std::uintptr_t>(__builtin_dwarf_cfa()), *frame};
#endif
}

// Fills `frames`, innermost first, and returns how many there are. Where this code is a library of its own, its frames
// are left out as long as no other has come.
// Takes a lock of ours only for a return address that was not seen before; allocates nothing but rows of such, and what
// it remembers of a thread's last walk.
struct NamedStack;
struct WalkEnd {
  bool calls_only = false;  // it is certain that no handler of signals is on this stack
  bool is_whole = true;     // as far as is known: it did not end at generated code, or at what is no frame
};
int unwind_stack(const WalkStart& start, void** frames, int frames_max, WalkEnd* end = nullptr,
                 NamedStack* named = nullptr);

// A stack that was seen to its end may be given a name, by which it is known again without its frames.
struct NamedStack {
  const void* tag;                           // keeps names apart
  std::uint32_t number = 0, generation = 0;  // for name_stack; 0: it can be given none
};
// 0: it has none, or is not known.
std::uint32_t name_of_stack(const WalkStart& start, const void* tag);
// The stack that unwind_stack was asked for just now.
void name_stack(const NamedStack& stack, std::uint32_t name);
// Whether that is worth its memory.
inline constinit std::atomic<bool> stacks_have_names{false};

// Whether a handler of signals is on the stack that unwind_stack has just filled `frames` with.
bool passes_signal(void* const* frames, int count);

// The walk goes no further out than this function, which calls main: before that comes what starts every program. Its
// tables would be memory that the program does not touch otherwise. Null: there is none.
inline constinit const void* outermost_function = nullptr;

// The others, for tests: libgcc's, and the walk alone, which returns -1 where it needs another.
int unwind_stack_with_libgcc(void** frames, int frames_max);
int unwind_stack_by_rows(const WalkStart& start, void** frames, int frames_max, WalkEnd* end = nullptr,
                         NamedStack* named = nullptr);

void unwinder_before_fork();
void unwinder_after_fork();

}  // namespace cistern
