// See unwinder.hpp. The walk by rows of unwind tables, which rows.hpp describes and cache.hpp has learnt;
// what it remembers of each thread's last stack; and who walks otherwise.
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

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/process_start.hpp"
#include "stats/unwind/cache.hpp"
#include "stats/unwind/last_walk.hpp"

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

using unwind::LastWalk, unwind::Row, unwind::Rows, unwind::Shape;

using unwind::word_at;

constexpr int kFramesMax = 64;
constexpr unsigned kMemories = 32;

// By thread; several threads may share one. Not in our data, which whoever judges leaks looks through: words of stacks
// lead to the program's blocks.
constinit std::atomic<LastWalk*> memories[kMemories] = {};
constinit LastWalk kNothing = {};

[[gnu::noinline]] LastWalk* make_memory(std::atomic<LastWalk*>& place) {
  void* const room = internal_try_allocate_zeroed(sizeof(LastWalk));
  if (!room) return nullptr;
  auto* const made = new (room) LastWalk;
  LastWalk* other = nullptr;
  if (place.compare_exchange_strong(other, made, std::memory_order_acq_rel)) return made;
  internal_deallocate(room, sizeof(LastWalk));
  return other;
}

// Null: it is in use, or there is no memory.
LastWalk* enter_memory() {
  const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  std::atomic<LastWalk*>& place = memories[(thread >> 12) % kMemories];
  LastWalk* memory = place.load(std::memory_order_acquire);
  if (!memory) memory = make_memory(place);
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
std::uintptr_t end_of_stack(std::uintptr_t frame) {
  static constinit std::atomic<std::uintptr_t> end_of_first{0};
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

// Out of our own code by a way that the last walk did not take, from its frame `way` on. False: a frame cannot be left.
[[gnu::noinline]] bool find_way_out(Registers& registers, std::uintptr_t& address, Rows* table, unsigned way,
                                    const WalkStart& start, LastWalk* memory) {
  std::uintptr_t rbp_offset = memory && way ? memory->own(way - 1).rbp_offset : 0;
  bool is_known = true;
  for (Row row; address && (row = unwind::find_row(table, address)).is_own();) {
    const std::uintptr_t own = address;
    if (row.shape() != Shape::from_rsp && memory) {
      memory->end_own(way);
      memory = nullptr;
    }
    if (!(is_known = registers.leave(row))) break;
    address = registers.return_address();
    if (!row.rbp_kept()) rbp_offset = registers.cfa + row.rbp_offset() - start.cfa;
    if (memory) memory->note_own(way++, {own, registers.cfa - start.cfa, rbp_offset});
  }
  if (memory) memory->end_own(way);
  return is_known;
}

// By the way that the last walk took, as far as this one takes it; then a frame of another's is to be expected.
[[gnu::always_inline]] inline unsigned follow_way_out(Registers& registers, std::uintptr_t& address,
                                                      const WalkStart& start, const LastWalk& last) {
  const unsigned way = Registers::kNotesOwnFrames ? last.own_in_common(address, start.cfa) : 0;
  if (!way) return 0;
  const unwind::OwnFrame& left = last.own(way - 1);
  registers.cfa = start.cfa + left.cfa_offset;
  if (left.rbp_offset) registers.rbp = word_at(start.cfa + left.rbp_offset);
  address = registers.return_address();
  return way;
}

// Of the walk that is remembered.
[[gnu::always_inline]] inline bool find_name(LastWalk& memory, NamedStack& stack) {
  const unwind::StackNames::Number number = memory.number();
  if (!number) return false;
  stack.number = number;
  stack.generation = memory.names->generation();
  return (stack.name = memory.names->name(number, stack.tag)) != 0;
}

}  // namespace

[[gnu::noinline]] int unwind_stack_by_rows(const WalkStart& start, void** frames, int frames_max, WalkEnd* walk_end,
                                           NamedStack* named) {
  Registers registers{start.cfa, start.rbp, end_of_stack(start.cfa)};
  std::uintptr_t address = start.address;
  Rows* const table = unwind::rows.load(std::memory_order_acquire);
  LastWalk* const memory = enter_memory();
  const LastWalk& last = memory ? *memory : kNothing;
  bool known = true, calls_only = true, whole = false;
  const unsigned way = follow_way_out(registers, address, start, last);
  unsigned at = last.first();          // of the last walk's frames, where this one's are looked for
  unsigned differs = 0;                // where a look at what that one read came to
  unsigned again = LastWalk::kFrames;  // from there on this walk ends as that one did
  unsigned checked = 0;
  if (memory) memory->note_none();
  void **const begin = frames, **const end = frames + std::min(frames_max, kFramesMax);
  // A stack has its name to its very end, further than there is room for frames.
  for (auto left = named ? std::ptrdiff_t{LastWalk::kFrames} : end - frames; known && left > 0 && address; --left) {
    if (last.address(at) != address)
      while (last.address(at) && last.cfa(at) < registers.cfa) ++at;
    Row row;
    if (last.address(at) == address) [[likely]] {
      if (last.cfa(at) == registers.cfa && last.holds_from(at, registers.rbp, registers.end, differs)) {
        again = at;
        break;
      }
      row = last.row(at++);
    } else {
      row = unwind::find_row(table, address);
      if (row.is_own() && frames == begin) [[unlikely]] {
        known = find_way_out(registers, address, table, way, start, Registers::kNotesOwnFrames ? memory : nullptr);
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
        Registers outer = registers;  // a copy, so that the walk's own stay in the processor's
        const Passed passed = pass_handler(outer, table, frames);
        registers = outer;
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
  if (memory) {
    if (known && calls_only) {
      memory->remember(again, whole);
      if (named && find_name(*memory, *named)) again = LastWalk::kFrames;
    }
    if (again != LastWalk::kFrames) {
      const auto left = std::min<std::ptrdiff_t>(LastWalk::kFrames - again, end - frames);
      std::memcpy(frames, last.addresses(again), static_cast<std::size_t>(left) * sizeof *frames);
      frames += left;
    }
    memory->leave();
  }
  if (walk_end) walk_end->calls_only = known && calls_only;
  return known ? static_cast<int>(frames - begin) : -1;
}

[[gnu::noinline]] void name_stack(const NamedStack& stack, std::uint32_t name) {
  LastWalk* const memory = enter_memory();
  if (!memory) return;
  unwind::StackNames*& names = memory->names;
  if (!names || names->is_full()) {
    if (names) names->begin_anew();
    if (!names) names = static_cast<unwind::StackNames*>(internal_try_allocate_zeroed(sizeof *names));
    memory->forget();  // what is remembered has other numbers
  }
  if (names && stack.number && stack.generation == names->generation()) names->set_name(stack.number, stack.tag, name);
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
