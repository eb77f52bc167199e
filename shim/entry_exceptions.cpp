// No exception is ever thrown inside the shared object. The static libstdc++ keeps 72 KiB of the program's heap for
// throwing without memory, taken by a constructor; with its allocation of exceptions defined here, that part of it is
// not linked. What remains of its throwing functions would end in std::terminate, and ends here instead.
#include <stdlib.h>

#include <cstddef>

extern "C" {
[[noreturn]] void* __cxa_allocate_exception(std::size_t) noexcept { abort(); }
void __cxa_free_exception(void*) noexcept {}
[[noreturn]] void* __cxa_allocate_dependent_exception() noexcept { abort(); }
void __cxa_free_dependent_exception(void*) noexcept {}
}
