// See frames.hpp.
#include "stats/python/frames.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "pool/base/system_call.hpp"

namespace cistern::python {
namespace {

constexpr int kLooksMax = 4096;  // frames that are no Python frames, in a row, prove that this is no stack

constinit std::atomic<bool> is_off{false};

// Of this thread. Up to 3.11, a sub-interpreter's is the current one, but only with the GIL; without it only a process
// of one interpreter can tell.
const char* state_of_thread(const Layout& layout, const Interpreter& interpreter) {
  const char* const own = interpreter.own_state();
  const auto is_of_this_thread = [&layout](const char* state) {
    return read<pthread_t>(state, layout.state_thread) == pthread_self();
  };
  if (!own || !is_of_this_thread(own)) return nullptr;
  if (!interpreter.current_state) return own;
  const char* const current = interpreter.current_state();
  if (current == own) return own;
  const void* const first = interpreter.first();
  if (!first) return nullptr;
  if (!interpreter.next(first)) return own;
  return current && is_of_this_thread(current) ? current : nullptr;
}

const char* innermost_frame(const Layout& layout, const Interpreter& interpreter) {
  const char* const state = state_of_thread(layout, interpreter);
  if (!state) return nullptr;
  const char* const frame = read_pointer(state, layout.state_frame);
  return layout.frame_in_holder < 0 ? frame : read_pointer(frame, static_cast<std::size_t>(layout.frame_in_holder));
}

// While an interpreter ends it frees states and frames of threads that still run. The first thread that sees this waits
// for those that began to look before it did; most often it is the thread that frees them.
class Walking {
 public:
  explicit Walking(const Interpreter& interpreter) {
    walkers.fetch_add(1, std::memory_order_seq_cst);
    may_ = !interpreter.is_finalizing();
  }
  ~Walking() {
    // A fork may have come in between: the child has none.
    if (walkers.load(std::memory_order_relaxed)) walkers.fetch_sub(1, std::memory_order_release);
    if (!may_) wait_for_others();
  }
  Walking(const Walking&) = delete;
  Walking& operator=(const Walking&) = delete;
  explicit operator bool() const { return may_; }

 private:
  static void wait_for_others() {
    constexpr timespec kTick{0, 100'000};
    constexpr int kTicksMax = 2000;
    static constinit std::atomic<bool> waited{false};
    if (waited.exchange(true)) return;
    for (int i = 0; i < kTicksMax && walkers.load(std::memory_order_acquire); ++i)
      system_call(SYS_nanosleep, reinterpret_cast<std::uintptr_t>(&kTick), 0);
  }

  bool may_;
};

// Null: the frame is none that runs Python code, or has not begun to.
[[gnu::always_inline]] inline const char* code_of(const Layout& layout, const char* frame, const void* code_type) {
  constexpr std::uintptr_t kTags = 3;
  const auto tagged = read<std::uintptr_t>(frame, layout.frame_code);
  const char* const code = reinterpret_cast<const char*>(tagged & ~kTags);
  if (!code || read_pointer(code, kType) != code_type) return nullptr;
  if (layout.instruction_is_index() || read<std::uint8_t>(frame, layout.frame_owner) == layout.owner_generator)
    return code;
  const char* const first = code + layout.code_start + 2 * std::ptrdiff_t{read<int>(code, layout.code_first_traceable)};
  return read_pointer(frame, layout.frame_instruction) < first ? nullptr : code;
}

[[gnu::always_inline]] inline std::uintptr_t instruction_of(const Layout& layout, const char* frame) {
  if (layout.instruction_is_index()) return read<std::uint32_t>(frame, layout.frame_instruction);
  return read<std::uintptr_t>(frame, layout.frame_instruction);
}

// A walk for each version: its offsets are constants of the code.
template <std::size_t version>
int read_from(const Interpreter& interpreter, Frame* frames, int frames_max) {
  constexpr Layout layout = kLayouts[version];
  int count = 0;
  const char* frame = innermost_frame(layout, interpreter);
  for (int looks = 0; frame && count < frames_max && looks < kLooksMax; ++looks) {
    if (layout.run_end == RunEnd::callers_frame &&
        read<std::uint8_t>(frame, layout.frame_owner) >= layout.owner_caller) {
      // Its run may be empty, and it may end the frame before it.
      if (count && !frames[count - 1].ends_run())
        frames[count - 1] = Frame(frames[count - 1].line(), true);
      else
        frames[count++] = Frame(nullptr, true);
    } else {
      const char* const code = code_of(layout, frame, interpreter.code_type);
      const Line* line = nullptr;
      if (code) [[likely]] {
        const Instruction instruction{code, instruction_of(layout, frame)};
        line = find_line(layout, instruction);
        if (!line) [[unlikely]]
          line = insert_line(layout, instruction);
      }
      const bool ends_run = layout.run_end == RunEnd::every_frame || (layout.run_end == RunEnd::flagged_frame &&
                                                                      read<std::uint8_t>(frame, layout.frame_is_entry));
      if (line || ends_run) frames[count++] = Frame(line, ends_run);
    }
    frame = read_pointer(frame, layout.frame_previous);
  }
  return count;
}

using Walk = int (*)(const Interpreter& interpreter, Frame* frames, int frames_max);
template <std::size_t... versions>
constexpr std::array<Walk, sizeof...(versions)> walks_of(std::index_sequence<versions...>) {
  return {read_from<versions>...};
}
constexpr auto kWalks = walks_of(std::make_index_sequence<std::size(kLayouts)>());

// An object that was unloaded has no frame on this stack; another one may lie there by now.
bool is_still_there(const Interpreter& interpreter) {
  if (interpreter.is_program) return true;
  dl_find_object found;
  return _dl_find_object(reinterpret_cast<void*>(interpreter.eval_start), &found) == 0 &&
         reinterpret_cast<std::uintptr_t>(found.dlfo_map_start) == interpreter.start &&
         reinterpret_cast<std::uintptr_t>(found.dlfo_map_end) == interpreter.end &&
         found.dlfo_eh_frame == interpreter.unwind_tables;
}

}  // namespace

int read_frames(void* const* addresses, int count, bool cut_off, Frame* frames, int frames_max) {
  const unsigned known = interpreter_count.load(std::memory_order_acquire);
  for (unsigned i = 0; i < known && !is_off.load(std::memory_order_relaxed); ++i) {
    const Interpreter& interpreter = interpreters[i];
    if (!interpreter.layout) continue;
    const auto lies_in_it = [&interpreter](const void* address) {
      return interpreter.holds(reinterpret_cast<std::uintptr_t>(address));
    };
    if (!cut_off && !std::any_of(addresses, addresses + count, lies_in_it)) continue;
    if (!is_still_there(interpreter)) continue;
    const Walking walking(interpreter);
    if (!walking) continue;
    const auto walk = kWalks[interpreter.layout - kLayouts];
    if (const int read = walk(interpreter, frames, frames_max)) return read;
  }
  return 0;
}

bool is_evaluation(std::uintptr_t address) {
  const unsigned known = interpreter_count.load(std::memory_order_acquire);
  return std::any_of(interpreters, interpreters + known, [address](const Interpreter& interpreter) {
    return interpreter.layout && interpreter.evaluates(address);
  });
}

bool is_interpreter(std::uintptr_t address) {
  const unsigned known = interpreter_count.load(std::memory_order_acquire);
  return std::any_of(interpreters, interpreters + known,
                     [address](const Interpreter& interpreter) { return interpreter.holds(address); });
}

void switch_off() { is_off.store(true, std::memory_order_relaxed); }

}  // namespace cistern::python
