// No exception is ever thrown inside the shared object. The static libstdc++ keeps 72 KiB of the program's heap for
// throwing without memory, taken by a constructor; with its allocation of exceptions defined here, that part of it is
// not linked. Nor are the functions that its containers and atomics throw with, and what those bring along: the error
// categories, with a constructor and destructors that every process would run. All of its functexcept.cc is replaced:
// a part of it that came along after all would define the rest again. What would end in std::terminate ends here.
#include <bits/functexcept.h>
#include <stdlib.h>

#include <cstddef>

extern "C" {
[[noreturn]] void* __cxa_allocate_exception(std::size_t) noexcept { abort(); }
void __cxa_free_exception(void*) noexcept {}
[[noreturn]] void* __cxa_allocate_dependent_exception() noexcept { abort(); }
void __cxa_free_dependent_exception(void*) noexcept {}
}

namespace std {
void __throw_bad_exception() { abort(); }
void __throw_bad_alloc() { abort(); }
void __throw_bad_array_new_length() { abort(); }
void __throw_bad_cast() { abort(); }
void __throw_bad_typeid() { abort(); }
void __throw_logic_error(const char*) { abort(); }
void __throw_domain_error(const char*) { abort(); }
void __throw_invalid_argument(const char*) { abort(); }
void __throw_length_error(const char*) { abort(); }
void __throw_out_of_range(const char*) { abort(); }
void __throw_out_of_range_fmt(const char*, ...) { abort(); }
void __throw_runtime_error(const char*) { abort(); }
void __throw_range_error(const char*) { abort(); }
void __throw_overflow_error(const char*) { abort(); }
void __throw_underflow_error(const char*) { abort(); }
void __throw_system_error(int) { abort(); }
}  // namespace std
