// Stacks that threads set aside for their signal handlers: only the kernel has the pointer to some.
#pragma once
#include <cstdint>

namespace cistern {

// By the thread itself; null: it has none any more. Any number of threads at once, and in signal handlers.
void note_alternate_stack(const void* stack);

// `thread`: its thread pointer, which another thread may have got by now.
void visit_alternate_stacks(void (*visit)(void* context, std::uintptr_t thread, std::uintptr_t stack), void* context);

}  // namespace cistern
