// See unwinder.hpp. The walk by rows of unwind tables, which rows.hpp describes and cache.hpp has learnt;
// what it remembers of each thread's last stack; and who walks otherwise.
//
// The walk is as safe as the tables are right, like every unwinder's: what it reads are slots that the tables name.
#include "stats/unwind/unwinder.hpp"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include "stats/unwind/cache.hpp"
#endif

namespace cistern {

#if defined(__x86_64__)
namespace {

using unwind::Row, unwind::Rows, unwind::Shape;

std::uintptr_t word_at(std::uintptr_t address) { return *reinterpret_cast<const std::uintptr_t*>(address); }

// --- The walk
// Looking a row up by the address just read is a chain of loads; most of a stack was there at the thread's last walk
// already. So the rows of that are tried first: a row whose address is the one that was read is the right one.
struct Frame {
  std::uintptr_t address, cfa;  // the CFA of the frame below, as where to look for this one
  Row row;
};

constexpr int kFramesMax = 64;
constexpr unsigned kMemories = 32;

struct alignas(64) Memory {
  std::atomic<bool> busy;  // in use by a thread, or by what a signal interrupted: then nothing is remembered
  std::uint8_t latest;
  Frame walks[2][kFramesMax + 1];  // an address of 0 ends one
};

constinit Memory memories[kMemories] = {};
constinit const Frame kNothing = {};

Memory* enter_memory() {
  const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  Memory& memory = memories[(thread >> 12) % kMemories];
  return memory.busy.exchange(true, std::memory_order_acquire) ? nullptr : &memory;
}

void leave_memory(Memory& memory, Frame* end) {
  end->address = 0;
  memory.latest ^= 1;
  memory.busy.store(false, std::memory_order_release);
}

// The row at `last` or behind it, when it is that of `address`; frames further out have a higher CFA.
Row row_of_frame(const Frame*& last, Rows* table, std::uintptr_t address, std::uintptr_t cfa) {
  if (last->address != address)
    while (last->address && last->cfa < cfa) ++last;
  return last->address == address ? last++->row : unwind::find_row(table, address);
}

constexpr std::uintptr_t kStackBytesMax = std::uintptr_t{1} << 30;

// Nobody's code: generated, which no unwinder has tables of, or no code at all.
bool lies_in_module(std::uintptr_t address) {
  dl_find_object found;
  return _dl_find_object(reinterpret_cast<void*>(address - 1), &found) == 0;
}

// Where this thread's stack ends at most. A thread's descriptor lies at the end of the stack that it was given, what
// the kernel gave the program at the end of the first thread's.
std::uintptr_t end_of_stack(std::uintptr_t frame) {
  static constinit std::atomic<std::uintptr_t> end_of_first{0};
  const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  if (thread - frame < kStackBytesMax) return thread;
  std::uintptr_t end = end_of_first.load(std::memory_order_relaxed);
  if (!end) end_of_first.store(end = getauxval(AT_RANDOM), std::memory_order_relaxed);
  return end - frame < kStackBytesMax ? end : frame + kStackBytesMax;
}

// What is left of a stack: frames lie further out than the last, and within it. Coroutines that share one stack leave
// words on it that are no frames of theirs, so nothing is read that was not looked at.
struct Registers {
  std::uintptr_t cfa, rbp;
  const std::uintptr_t end;

  // One frame outwards. False: there is none, or none that can be.
  bool leave(Row row) {
    const std::uintptr_t inner = cfa;
    switch (row.shape()) {
      case Shape::from_rbp:
        cfa = rbp;
        [[fallthrough]];
      case Shape::from_rsp:
        cfa += row.cfa_offset();
        if (!lies_outside(inner)) return false;
        if (!row.rbp_kept()) rbp = word_at(cfa + row.rbp_offset());
        return true;
      case Shape::at_rbp:
        if (rbp + row.cfa_offset() - inner >= end - inner || rbp % 8) return false;
        cfa = word_at(rbp + row.cfa_offset());
        rbp = word_at(rbp + row.rbp_offset());
        return lies_outside(inner);
      default:
        return false;
    }
  }

 private:
  bool lies_outside(std::uintptr_t inner) const { return cfa > inner && cfa <= end && cfa % 8 == 0; }
};

}  // namespace

[[gnu::noinline]] int unwind_stack_by_rows(void** frames, int frames_max, WalkEnd* walk_end) {
  // This function keeps a frame pointer, so the caller's registers are known.
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  Registers registers{frame + 16, word_at(frame), end_of_stack(frame)};
  std::uintptr_t address = word_at(frame + 8);
  Rows* const table = unwind::rows.load(std::memory_order_acquire);
  Memory* const memory = enter_memory();
  const Frame* last = memory ? memory->walks[memory->latest] : &kNothing;
  Frame* noted = memory ? memory->walks[memory->latest ^ 1] : nullptr;
  unsigned checked = 0;
  bool known = true;
  void** const begin = frames;
  for (void** const end = frames + std::min(frames_max, kFramesMax); frames != end && address;) {
    Row row = last->row;
    if (last->address == address && row.is_plain()) [[likely]] {
      ++last;
    } else {
      row = row_of_frame(last, table, address, registers.cfa);
      if (row.module() && row.module() != checked) {
        row = unwind::up_to_date(row, address);
        checked = row.module();
      }
    }
    if (memory) *noted++ = {address, registers.cfa, row};
    *frames++ = reinterpret_cast<void*>(address);
    if (!registers.leave(row)) {
      // Where the tables are wrong, or the stack is, the walk ends here, with what it has.
      known = row.shape() != Shape::none || !lies_in_module(address);
      if (walk_end) *walk_end = {known, row.shape() == Shape::outermost};
      break;
    }
    address = word_at(registers.cfa - 8);
  }
  if (memory) leave_memory(*memory, noted);
  return known ? static_cast<int>(frames - begin) : -1;
}

void unwinder_before_fork() { unwind::cache_before_fork(); }
void unwinder_after_fork() { unwind::cache_after_fork(); }
#else
int unwind_stack_by_rows(void**, int, WalkEnd*) { return -1; }
void unwinder_before_fork() {}
void unwinder_after_fork() {}
#endif

// --- The others
namespace {

using Unwinder = int (*)(void** frames, int frames_max);

struct Walk {
  void** frames;
  int count, frames_max;
};

_Unwind_Reason_Code note_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  const _Unwind_Ptr address = _Unwind_GetIP(context);
  if (!address || walk.count == walk.frames_max) return _URC_END_OF_STACK;
  walk.frames[walk.count++] = reinterpret_cast<void*>(address);
  return _URC_NO_REASON;
}

constinit std::atomic<Unwinder> other_unwinder{unwind_stack_with_libgcc};
constinit std::atomic<bool> libgcc_for_good{false};

}  // namespace

int unwind_stack_with_libgcc(void** frames, int frames_max) {
  Walk walk{frames, 0, frames_max};
  _Unwind_Backtrace(note_frame, &walk);
  return walk.count;
}

int unwind_stack(void** frames, int frames_max, WalkEnd* end) {
  if (end) *end = {true, true};
  const int count = unwind_stack_by_rows(frames, frames_max, end);
  if (count >= 0) return count;
  if (end) *end = {};
  return other_unwinder.load(std::memory_order_acquire)(frames, frames_max);
}

// By the code that a handler returns to, which is the same everywhere. Where rows alone were enough there is none.
bool passes_signal(void* const* frames, int count) {
#if defined(__x86_64__)
  constexpr char kReturn[] = "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05";  // mov $SYS_rt_sigreturn, %rax; syscall
#elif defined(__aarch64__)
  constexpr char kReturn[] = "\x68\x11\x80\xd2\x01\x00\x00\xd4";  // mov x8, #SYS_rt_sigreturn; svc #0
#endif
  return std::any_of(frames, frames + count, [&](const void* address) {
    dl_find_object found;
    return _dl_find_object(const_cast<void*>(address), &found) == 0 &&
           std::memcmp(address, kReturn, sizeof kReturn - 1) == 0;
  });
}

void unwinder_after_fork_in_child() {
  unwinder_after_fork();
  libgcc_for_good.store(true);
  other_unwinder.store(unwind_stack_with_libgcc, std::memory_order_release);
}

void prepare_unwinder(LookUp look_up) {
  if (other_unwinder.load(std::memory_order_relaxed) != unwind_stack_with_libgcc || libgcc_for_good.load()) return;
  // libunwind locks a mutex when a thread ends, behind ThreadSanitizer's own end of the thread: that would crash.
  if (look_up(RTLD_DEFAULT, "__tsan_init")) return;
  // Local: it exports an exception unwinder of its own, which must not reach the program.
  const auto open = reinterpret_cast<void* (*)(const char*, int)>(look_up(RTLD_NEXT, "dlopen"));
  void* library = open ? open("libunwind.so.8", RTLD_LAZY | RTLD_LOCAL) : nullptr;
  if (!library) return;
  const auto fast = reinterpret_cast<Unwinder>(look_up(library, "unw_backtrace"));
  void* frames[8];
  // Its first call fills caches; it must see this function and its caller at least.
  if (fast && fast(frames, 8) > 1) other_unwinder.store(fast, std::memory_order_release);
}

}  // namespace cistern
