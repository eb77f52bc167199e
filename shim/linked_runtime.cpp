// In a program that links this: what the C++ library's parts call where they would throw. Nothing of ours lets it come
// to that; its own functions would bring exceptions with them, their strings, and symbols that keep a plugin from being
// unloaded. Nobody else sees these (CMakeLists.txt).
#include <stdlib.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <system_error>
#include <typeinfo>

namespace std {

void __throw_bad_alloc() { abort(); }
void __throw_bad_array_new_length() { abort(); }
void __throw_logic_error(const char*) { abort(); }
void __throw_length_error(const char*) { abort(); }
void __throw_out_of_range_fmt(const char*, ...) { abort(); }
void __throw_system_error(int) { abort(); }

bool _Sp_make_shared_tag::_S_eq(const type_info&) noexcept { return false; }  // without type information

}  // namespace std

void* operator new(std::size_t bytes) {
  void* const block = malloc(bytes ? bytes : 1);
  if (!block) abort();
  return block;
}
void operator delete(void* block) noexcept { free(block); }
void operator delete(void* block, std::size_t) noexcept { free(block); }
