// The unwinder: return addresses of the calling thread's stack. libunwind when the system has it (tens of
// nanoseconds through its cache), else the one of libgcc that is linked in (microseconds).
#pragma once

namespace cistern {

// Fills `frames`, innermost first, and returns how many there are; the first ones lie in the unwinder itself.
// Needs no lock of ours; works before prepare_unwinder, slower.
int unwind_stack(void** frames, int frames_max);

// Opens and warms up libunwind. It opens files and allocates: never inside malloc. Safe to call again.
void prepare_unwinder();

// libgcc's, which unwind_stack falls back to.
int unwind_stack_with_libgcc(void** frames, int frames_max);

}  // namespace cistern
