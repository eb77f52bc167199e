// Stacks that threads set aside for their signal handlers: only the kernel has the pointer to some.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cistern {

// By the thread itself; null: it has none any more. Any number of threads at once, and in signal handlers.
void note_alternate_stack(const void* stack, std::size_t bytes);

// `thread`: its thread pointer, which another thread may have got by now.
using VisitAlternateStack = void (*)(void* context, std::uintptr_t thread, std::uintptr_t stack, std::uintptr_t bytes);
void visit_alternate_stacks(VisitAlternateStack visit, void* context);

}  // namespace cistern
