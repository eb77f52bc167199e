// The clock that never stands still for long and never goes back, read where nothing foreign may be called: in a
// section that a lock of ours guards, and inside malloc. The C library's clock_gettime may be another library's, which
// allocates (libfaketime's does); so the kernel's own function is called, which it maps into each process (the vDSO).
#pragma once
#include <cstdint>

namespace cistern {

// Finds the kernel's function. Called early and without a lock; until then, and where there is none, each reading is a
// system call.
void find_clock();

// Of any that the system has, by its number.
std::uint64_t clock_ns(int clock);
std::uint64_t monotonic_ns();
// As of the last tick of the system, every 1 to 4 ms: cheaper.
std::uint64_t coarse_monotonic_ns();

}  // namespace cistern
