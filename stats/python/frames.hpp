// The calling thread's Python frames. Read by offsets, from the thread's own state: nothing of Python's is called that
// allocates or locks, so it may happen inside malloc.
#pragma once
#include <cstddef>
#include <cstdint>

#include "stats/python/interpreter.hpp"
#include "stats/python/places.hpp"

namespace cistern::python {

// A captured frame, or what is left of one that cannot be shown: where a run of them ends.
class Frame {
 public:
  Frame() = default;
  Frame(const Line* line, bool ends_run) : word_(reinterpret_cast<std::uintptr_t>(line) | ends_run) {}
  // Null: not to be shown.
  const Line* line() const { return reinterpret_cast<const Line*>(word_ & ~std::uintptr_t{1}); }
  // The interpreter's function, called once, runs all frames up to and including this one.
  bool ends_run() const { return word_ & 1; }
  std::uintptr_t word() const { return word_; }

 private:
  std::uintptr_t word_;
};

// Those of this thread, innermost first, where its native stack `addresses` shows an interpreter or is `cut_off` before
// it could. Takes a lock of ours only for a line that was not seen before. Returns how many there are.
int read_frames(void* const* addresses, int count, bool cut_off, Frame* frames, int frames_max);

// Whether `address`, of a call on a stack, lies in an interpreter's function that runs Python code.
bool is_evaluation(std::uintptr_t address);
// Whether it lies in an interpreter at all.
bool is_interpreter(std::uintptr_t address);

// Off: there are no Python frames.
void switch_off();

}  // namespace cistern::python
