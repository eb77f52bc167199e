// See unwinder.hpp. The walk by rows of unwind tables, which rows.hpp describes and cache.hpp has learnt;
// what it remembers of each thread's stacks; and who walks otherwise.
//
// The walk is as safe as the tables are right, like every unwinder's: what it reads are slots that the tables name.
#include "stats/unwind/unwinder.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <ucontext.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/process_start.hpp"
#include "stats/unwind/cache.hpp"
#include "stats/unwind/known_stacks.hpp"

namespace cistern {
namespace {

// By the code that a signal's handler returns to, which is the same everywhere.
bool returns_from_handler(std::uintptr_t address) {
#if defined(__x86_64__)
  constexpr char kReturn[] = "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05";  // mov $SYS_rt_sigreturn, %rax; syscall
#elif defined(__aarch64__)
  constexpr char kReturn[] = "\x68\x11\x80\xd2\x01\x00\x00\xd4";  // mov x8, #SYS_rt_sigreturn; svc #0
#endif
  const auto* const code = reinterpret_cast<const char*>(address);
  dl_find_object found;
  return _dl_find_object(const_cast<char*>(code), &found) == 0 &&
         static_cast<const char*>(found.dlfo_map_end) - code >= static_cast<std::ptrdiff_t>(sizeof kReturn) &&
         std::memcmp(code, kReturn, sizeof kReturn - 1) == 0;
}

using unwind::KnownFrame, unwind::KnownFrames, unwind::KnownStacks, unwind::Row, unwind::Rows, unwind::Shape;

using unwind::word_at;

constexpr int kFramesMax = 64;
constexpr unsigned kMemories = 32;
// Room for frames of a thread, as a power of two: at first, and at last where stacks have names.
constexpr unsigned kKnownBits = 8, kKnownBitsMore = 2, kKnownBitsNamed = 12;

// By thread; several threads may share one. Not in our data, which whoever judges leaks looks through: words of stacks
// lead to the program's blocks.
constinit std::atomic<KnownStacks*> memories[kMemories] = {};

// Null: no memory.
KnownFrames* make_frames(unsigned bits, unsigned generation) {
  void* const room = internal_try_allocate(KnownFrames::bytes(bits));
  return room ? new (room) KnownFrames(bits, generation) : nullptr;
}
void drop_frames(KnownFrames* frames) {
  if (frames) internal_deallocate(frames, KnownFrames::bytes(frames->bits()));
}

[[gnu::noinline]] KnownStacks* make_memory(std::atomic<KnownStacks*>& slot) {
  KnownFrames* const frames = make_frames(kKnownBits, 0);
  void* const room = frames ? internal_try_allocate_zeroed(sizeof(KnownStacks)) : nullptr;
  KnownStacks* other = nullptr;
  if (room) {
    auto* const made = new (room) KnownStacks;
    made->frames = frames;
    if (slot.compare_exchange_strong(other, made, std::memory_order_acq_rel)) return made;
    internal_deallocate(room, sizeof(KnownStacks));
  }
  drop_frames(frames);
  return other;
}

// More frames than there is room for: there is more from now on, or they are forgotten.
[[gnu::noinline]] void make_room(KnownStacks& memory) {
  const unsigned bits = memory.frames->bits();
  const unsigned bits_max = stacks_have_names.load(std::memory_order_relaxed) ? kKnownBitsNamed : kKnownBits;
  KnownFrames* const larger =
      bits < bits_max ? make_frames(bits + kKnownBitsMore, memory.frames->generation() + 1) : nullptr;
  if (larger) return drop_frames(std::exchange(memory.frames, larger));
  memory.frames->begin_anew();
}

// Null: it is in use, or there is no memory.
inline KnownStacks* enter_memory() {
  const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  std::atomic<KnownStacks*>& slot = memories[(thread >> 12) % kMemories];
  KnownStacks* memory = slot.load(std::memory_order_acquire);
  if (!memory) [[unlikely]]
    memory = make_memory(slot);
  return memory && memory->enter() ? memory : nullptr;
}

constexpr std::uintptr_t kStackBytesMax = std::uintptr_t{1} << 30;

// Nobody's code: generated, which no unwinder has tables of, or no code at all.
bool lies_in_module(std::uintptr_t address) {
  dl_find_object found;
  return _dl_find_object(reinterpret_cast<void*>(address - 1), &found) == 0;
}

// Where this thread's stack ends at most. A thread's descriptor lies at the end of the stack that it was given, what
// the kernel gave the program at the end of the first thread's.
constinit std::atomic<std::uintptr_t> end_of_first{0};
inline std::uintptr_t end_of_stack(std::uintptr_t frame) {
  const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  if (thread - frame < kStackBytesMax) return thread;
  std::uintptr_t end = end_of_first.load(std::memory_order_relaxed);
  if (!end) end_of_first.store(end = start_value(AT_RANDOM), std::memory_order_relaxed);
  return end - frame < kStackBytesMax ? end : frame + kStackBytesMax;
}

// What is left of a stack: frames lie further out than the last, and within it. Coroutines that share one stack leave
// words on it that are no frames of theirs, so nothing is read that was not looked at.
struct Registers {
  std::uintptr_t cfa, rbp;
  std::uintptr_t end;

#if defined(__x86_64__)
  static constexpr bool kNotesOwnFrames = true;

  // Where the frame that was left returns to.
  std::uintptr_t return_address() const { return word_at(cfa - 8); }

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

  // Out of a signal's handler, which returns to what the kernel put down for it: `pc` becomes the instruction that the
  // signal interrupted, with its registers. Often they are those of another stack.
  bool leave_handler(std::uintptr_t& pc) {
    if (cfa % 8 || end - cfa < sizeof(ucontext_t)) return false;
    const greg_t* const saved = reinterpret_cast<const ucontext_t*>(cfa)->uc_mcontext.gregs;
    pc = static_cast<std::uintptr_t>(saved[REG_RIP]);
    rbp = static_cast<std::uintptr_t>(saved[REG_RBP]);
    cfa = static_cast<std::uintptr_t>(saved[REG_RSP]);
    end = end_of_stack(cfa);
    return cfa && cfa % 8 == 0;
  }
#else
  static constexpr bool kNotesOwnFrames = false;                  // whose return addresses lie anywhere

  std::uintptr_t returns_to = 0;

  std::uintptr_t return_address() const { return returns_to; }

  bool leave(Row row) {
    const std::uintptr_t inner = cfa, base = row.shape() == Shape::from_rbp ? rbp : cfa;
    if (row.shape() != Shape::from_rsp && row.shape() != Shape::from_rbp) return false;
    if (base - inner > end - inner || base % 8 || row.cfa_offset() > end - base) return false;
    cfa = base + row.cfa_offset();
    if (!lies_outside(inner)) return false;
    returns_to = without_signature(word_at(base + row.return_offset()));
    if (!row.rbp_kept()) rbp = word_at(base + row.rbp_offset());
    return true;
  }

  // A leaf that a signal interrupts has its return address in a register, which rows know nothing of.
  bool leave_handler(std::uintptr_t&) { return false; }

  // A return address may be signed, in bits that addresses do not have.
  static std::uintptr_t without_signature(std::uintptr_t address) {
    register std::uintptr_t x30 asm("x30") = address;
    asm("hint #7" : "+r"(x30));  // xpaclri
    return x30;
  }
#endif

 private:
  bool lies_outside(std::uintptr_t inner) const { return cfa > inner && cfa <= end && cfa % 8 == 0; }
};

// The frame that a signal interrupted, into `frame`; then the walk goes on with its caller. Its row is that of an
// instruction, so it is asked for as if a call had returned behind that.
enum class Passed { yes, ends_there, unknown };
[[gnu::noinline, gnu::cold]] Passed pass_handler(Registers& registers, Rows* table, void** frame) {
  std::uintptr_t pc;
  if (!registers.leave_handler(pc)) return Passed::unknown;
  *frame = reinterpret_cast<void*>(pc);
  Row row = unwind::find_row(table, pc + 1);
  if (row.module()) row = unwind::up_to_date(row, pc + 1);
  if (registers.leave(row)) return Passed::yes;
  return row.shape() != Shape::none || !lies_in_module(pc + 1) ? Passed::ends_there : Passed::unknown;
}

}  // namespace

namespace {

// A walk that goes on: where it is, and what was known before.
struct WalkByRows {
  Registers registers;
  std::uintptr_t address;
  KnownStacks* const memory;
  unsigned way = 0;  // through so many frames of our own code, as the last walk
};

// Out of our own code by a way that the last walk did not take, from its frame `way` on. False: a frame cannot be left.
[[gnu::noinline]] bool find_way_out(WalkByRows& walk, Rows* table, const WalkStart& start) {
  KnownStacks* memory = Registers::kNotesOwnFrames ? walk.memory : nullptr;
  unsigned way = walk.way;
  std::uintptr_t rbp_offset = memory && way ? memory->own(way - 1).rbp_offset : 0;
  bool is_known = true;
  for (Row row; walk.address && (row = unwind::find_row(table, walk.address)).is_own();) {
    const std::uintptr_t own = walk.address;
    if (row.shape() != Shape::from_rsp && memory) {
      memory->end_own(way);
      memory = nullptr;
    }
    if (!(is_known = walk.registers.leave(row))) break;
    walk.address = walk.registers.return_address();
    if (!row.rbp_kept()) rbp_offset = walk.registers.cfa + row.rbp_offset() - start.cfa;
    if (memory) memory->note_own(way++, {own, walk.registers.cfa - start.cfa, rbp_offset});
  }
  if (memory) memory->end_own(way);
  return is_known;
}

// By the way that the last walk took, as far as this one takes it; then a frame of another's is to be expected.
[[gnu::always_inline]] inline void follow_way_out(WalkByRows& walk, const WalkStart& start) {
  if (!Registers::kNotesOwnFrames) return;
  walk.way = walk.memory->own_in_common(walk.address, start.cfa);
  if (!walk.way) return;
  const unwind::OwnFrame& left = walk.memory->own(walk.way - 1);
  walk.registers.cfa = start.cfa + left.cfa_offset;
  if (left.rbp_offset) walk.registers.rbp = word_at(start.cfa + left.rbp_offset);
  walk.address = walk.registers.return_address();
}

[[gnu::noinline]] int walk_on(WalkByRows& walk, const WalkStart& start, void** frames, int frames_max,
                              WalkEnd* walk_end, NamedStack* named) {
  Registers& registers = walk.registers;
  std::uintptr_t& address = walk.address;
  Rows* const table = unwind::rows.load(std::memory_order_acquire);
  KnownStacks* const memory = walk.memory;
  bool known = true, calls_only = true, whole = false;
  unsigned joined = 0;         // from there on this walk ends as another did
  std::uintptr_t differs = 0;  // what was known up to this CFA leads elsewhere, or was not looked at
  unsigned checked = 0;
  void **const begin = frames, **const end = frames + std::min(frames_max, kFramesMax);
  // A stack has its name to its very end, further than there is room for frames.
  for (auto left = named ? std::ptrdiff_t{KnownFrames::kDepthMax} : end - frames; known && left > 0 && address;
       --left) {
    const unsigned seen = memory ? memory->frames->seen_at(address, registers.cfa) : 0;
    Row row;
    if (seen) {
      const KnownFrame& frame = memory->frames->frame(seen);
      if (registers.cfa > differs && frame.may_lead_on(registers.rbp, registers.end)) {
        const unsigned other = memory->frames->first_that_differs(seen);
        if (!other) {
          joined = seen;
          break;
        }
        differs = memory->frames->frame(other).cfa;
      }
      row = frame.row;
    } else {
      row = unwind::find_row(table, address);
      if (row.is_own() && frames == begin) [[unlikely]] {
        known = find_way_out(walk, table, start);
        ++left;  // no frame: who finds the room filled knows that there are more
        continue;
      }
    }
    if (row.module() && row.module() != checked) [[unlikely]] {
      row = unwind::up_to_date(row, address);
      checked = row.module();
    }
    if (memory) memory->note({address, registers.cfa, registers.rbp, row});
    const bool has_room = frames != end;
    if (has_room) *frames++ = reinterpret_cast<void*>(address);
    if (!registers.leave(row)) {
      // Where the tables are wrong, or the stack is, the walk ends here, with what it has.
      known = !has_room || row.shape() != Shape::none || !lies_in_module(address);
      whole = row.shape() == Shape::outermost;
      if (!whole && frames != end && returns_from_handler(address)) {
        calls_only = false;
        const Passed passed = pass_handler(registers, table, frames);
        frames += passed != Passed::unknown;
        known = passed != Passed::unknown;
        if (passed == Passed::yes) {
          address = registers.return_address();
          continue;
        }
      }
      if (walk_end) walk_end->is_whole = whole;
      break;
    }
    address = registers.return_address();
  }
  for (unsigned number = joined; number && frames != end; number = memory->frames->outer_of(number))
    *frames++ = reinterpret_cast<void*>(memory->frames->frame(number).address);
  if (memory && known && calls_only && (joined || whole)) {
    const unsigned number = memory->remember(joined);
    if (named) *named = {named->tag, number, memory->frames->generation()};
  }
  if (walk_end) walk_end->calls_only = known && calls_only;
  return known ? static_cast<int>(frames - begin) : -1;
}

}  // namespace

namespace {

// A walk at its beginning, or behind what it has in common with the last one.
[[gnu::always_inline]] inline WalkByRows begin_walk(const WalkStart& start) {
  WalkByRows walk{{start.cfa, start.rbp, end_of_stack(start.cfa)}, start.address, enter_memory()};
  if (walk.memory) {
    follow_way_out(walk, start);
    if (!walk.memory->frames->has_room()) [[unlikely]]
      make_room(*walk.memory);
    walk.memory->note_none();
  }
  return walk;
}

// False: the walk is at no frame of our own, or at one that cannot be left.
[[gnu::noinline]] bool leave_own_code(WalkByRows& walk, const WalkStart& start) {
  Rows* const table = unwind::rows.load(std::memory_order_acquire);
  return unwind::find_row(table, walk.address).is_own() && find_way_out(walk, table, start);
}

// The number of the stack that the walk begins; 0: not all of it is known. Where a frame leads elsewhere than it did,
// those further in are the same frames still, of another stack.
[[gnu::always_inline]] inline unsigned find_known(WalkByRows& walk, const WalkStart& start) {
  KnownStacks& memory = *walk.memory;
  const KnownFrames& frames = *memory.frames;
  Registers& registers = walk.registers;
  for (unsigned left = KnownFrames::kDepthMax; left; --left) {
    const unsigned seen = frames.seen_at(walk.address, registers.cfa);
    if (!seen) {
      if (left != KnownFrames::kDepthMax || !leave_own_code(walk, start)) return 0;
      continue;
    }
    unsigned differs = seen;
    if (frames.frame(seen).may_lead_on(registers.rbp, registers.end)) differs = frames.first_that_differs(seen);
    if (!differs) return memory.remember(seen);
    for (unsigned number = seen;; number = frames.outer_of(number)) {
      const KnownFrame& frame = frames.frame(number);
      memory.note({frame.address, frame.cfa, registers.rbp, frame.row});
      if (!registers.leave(frame.row)) return 0;
      if (number == differs) break;
    }
    walk.address = registers.return_address();
  }
  return 0;
}

}  // namespace

[[gnu::noinline]] int unwind_stack_by_rows(const WalkStart& start, void** frames, int frames_max, WalkEnd* walk_end,
                                           NamedStack* named) {
  WalkByRows walk = begin_walk(start);
  const int count = walk_on(walk, start, frames, frames_max, walk_end, named);
  if (walk.memory) walk.memory->leave();
  return count;
}

[[gnu::noinline]] std::uint32_t name_of_stack(const WalkStart& start, const void* tag) {
  WalkByRows walk = begin_walk(start);
  if (!walk.memory) return 0;
  const KnownFrame& stack = walk.memory->frames->frame(find_known(walk, start));
  const std::uint32_t name = stack.tag == tag ? stack.name : 0;
  walk.memory->leave();
  return name;
}

[[gnu::noinline]] void name_stack(const NamedStack& stack, std::uint32_t name) {
  KnownStacks* const memory = enter_memory();
  if (!memory) return;
  if (stack.number && stack.generation == memory->frames->generation())
    memory->frames->set_name(stack.number, stack.tag, name);
  memory->leave();
}

void unwinder_before_fork() { unwind::cache_before_fork(); }
void unwinder_after_fork() { unwind::cache_after_fork(); }

// --- The others
namespace {

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

}  // namespace

int unwind_stack_with_libgcc(void** frames, int frames_max) {
  Walk walk{frames, 0, frames_max};
  _Unwind_Backtrace(note_frame, &walk);
  return walk.count;
}

int unwind_stack(const WalkStart& start, void** frames, int frames_max, WalkEnd* end, NamedStack* named) {
  if (end) *end = {true, true};
  int count = unwind_stack_by_rows(start, frames, frames_max, end, named);
  if (count >= 0) return count;
  if (end) *end = {};
  assert_no_lock_held();
  count = unwind_stack_with_libgcc(frames, frames_max);
  if (end) end->is_whole = count < frames_max;  // its own frames, which go now, took room
  void** const first = std::find(frames, frames + count, reinterpret_cast<void*>(start.address));
  return first == frames + count ? count : static_cast<int>(std::move(first, frames + count, frames) - frames);
}

bool passes_signal(void* const* frames, int count) {
  return std::any_of(frames, frames + count, [](const void* address) {
    return returns_from_handler(reinterpret_cast<std::uintptr_t>(address));
  });
}

}  // namespace cistern
