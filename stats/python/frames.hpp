// The calling thread's Python frames. Read by offsets, from the thread's own state: nothing of Python's is called that
// allocates or locks, so it may happen inside malloc. A frame is kept as its place: function, file and line, which are
// copied when they are seen first, because code objects go away, and others take their addresses.
#pragma once
#include <cstddef>
#include <cstdint>

#include "pool/base/internal_memory.hpp"
#include "stats/python/interpreter.hpp"

namespace cistern::python {

struct Code;

// An instruction of a function. Never given back.
struct Place {
  Place* next;
  const Code* code;
  std::uintptr_t instruction;  // its address; in old versions its number
  unsigned line;               // 0: unknown

  const String& function() const;
  const String& file() const;
};

// A captured frame, or what is left of one that cannot be shown: where a run of them ends.
class Frame {
 public:
  Frame() = default;
  Frame(const Place* place, bool ends_run) : word_(reinterpret_cast<std::uintptr_t>(place) | ends_run) {}
  // Null: not to be shown.
  const Place* place() const { return reinterpret_cast<const Place*>(word_ & ~std::uintptr_t{1}); }
  // The interpreter's function, called once, runs all frames up to and including this one.
  bool ends_run() const { return word_ & 1; }
  std::uintptr_t word() const { return word_; }

 private:
  std::uintptr_t word_;
};

// Those of this thread, innermost first, where its native stack `addresses` shows an interpreter or is `cut_off` before
// it could. Takes a lock of ours only for a place that was not seen before. Returns how many there are.
int read_frames(void* const* addresses, int count, bool cut_off, Frame* frames, int frames_max);

// Whether `address`, of a call on a stack, lies in an interpreter's function that runs Python code.
bool is_evaluation(std::uintptr_t address);
// Whether it lies in an interpreter at all.
bool is_interpreter(std::uintptr_t address);

// Off: there are no Python frames.
void switch_off();

// Frames that are not shown: too many places were seen.
std::uint64_t frames_dropped();

void frames_before_fork();
void frames_after_fork();

}  // namespace cistern::python
