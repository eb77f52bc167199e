// What of a thread's stack is in use. Behind it lie frames that are over, whose words lead anywhere.
#pragma once
#include <cstdint>

namespace cistern {

// A function may use so much below its stack pointer without moving it (System V ABI of x86-64; aarch64 has none).
constexpr std::uintptr_t kBelowStackPointer = 128;

// Where a handler runs on another stack, from `stack` up to `stack_end`: the stack pointer of what it interrupted, as
// the kernel saved it there. 0: no signal's frame is found.
std::uintptr_t interrupted_stack(std::uintptr_t stack, std::uintptr_t stack_end);

// What a call would return to: the instruction before it is one. (A pointer to a function is none.) The bytes in front
// can be read.
bool is_behind_call(std::uintptr_t address);

}  // namespace cistern
