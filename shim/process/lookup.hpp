// Finding real functions: the C library's dlsym behind ours, and the next provider of a symbol we export.
#pragma once
#include <string_view>

#include "pool/base/internal_memory.hpp"

struct link_map;

namespace cistern {

using Dlsym = void* (*)(void* handle, const char* name);

// The C library's dlsym. Lock-free after the first call, works before any constructor, does not allocate.
Dlsym real_dlsym();

// The dlopen behind ours, for calls of our own: our export is for the program's.
using Dlopen = void* (*)(const char* file, int mode);
Dlopen real_dlopen();

// The next definition of `name` after Cistern in the global search order; null leaves no dlerror behind.
void* next_symbol(const char* name);

// The same, of any version, of those that the process started with, read from their own tables: takes no lock,
// allocates nothing, calls nothing. Debuggers of memory export old versions, to which programs are linked; dlsym passes
// over them. Where we were opened later than those: what a call of `name` reaches.
void* next_definition(const char* name);

// The same from the program on: what a call of `name` reaches, which is not one of those we export.
void* first_definition(const char* name);

enum class Loading { only_if_loaded, allowed };

// `name` from the next provider in the global order, else from the library called `library_soname`: one that the
// program loaded privately (RTLD_LOCAL) or, where that is allowed, one loaded now. The library stays loaded then:
// its functions are called for as long as the process lives. Null when there is none.
void* real_symbol(const char* name, const char* library_soname, Loading loading = Loading::only_if_loaded);

// A library that is loaded already, held while functions are looked up in it. `name`: its soname or path.
class LoadedLibrary {
 public:
  explicit LoadedLibrary(const char* name);
  ~LoadedLibrary();
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;
  explicit operator bool() const { return handle_ != nullptr; }
  // Null when it has none of that name, and leaves no dlerror behind.
  void* find(const char* name) const;

 private:
  void* handle_;
};

// The loaded object that contains `address`, null for none. Takes no lock.
link_map* module_of(const void* address);
link_map* own_module();
link_map* main_module();
bool is_c_library(const link_map& module);
const link_map* c_library();
// The first of the list from `from` on, which has the global order as far as the C library; null for none.
const link_map* first_module_with(const char* name, const link_map* from);
const link_map* module_behind_us(const char* name);
// The path of the first loaded object but ours, whoever loaded it and however, that has both; empty: none.
String path_of_library_with(const char* name, const char* other_name);
// Whether `address` lies in an object whose file name starts with `file_prefix` ("libOpenCL.so").
bool lies_in_library(const void* address, std::string_view file_prefix);
bool library_is_loaded(std::string_view file_prefix);

}  // namespace cistern

// The assembly of dlsym and dlopen jumps to these; the first call of real_dlsym() and real_dlopen() sets them.
extern "C" [[gnu::visibility("hidden")]] cistern::Dlsym cistern_real_dlsym;
extern "C" [[gnu::visibility("hidden")]] cistern::Dlopen cistern_real_dlopen;
