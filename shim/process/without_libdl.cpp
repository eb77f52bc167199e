// See without_libdl.hpp. All of it runs with old C libraries only.
#include "shim/process/without_libdl.hpp"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include <string_view>

#include "pool/base/path.hpp"
#include "pool/base/symbol_table.hpp"
#include "shim/process/lookup.hpp"

namespace cistern {
namespace {

// A flag that these C libraries have for their own use: they load character sets and name services by it.
constexpr int kByTheCLibrary = 1 << 31;  // __RTLD_DLOPEN
template <class Function>
Function own_function(const char* name) {
  return reinterpret_cast<Function>(SymbolTable(*c_library()).address_of(name));
}

struct Search {
  std::string_view library;
  const char* name;
  void* found;
};

int search_object(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (!basename_of(info->dlpi_name).starts_with(search.library)) return 0;
  link_map map{};
  map.l_addr = info->dlpi_addr;
  for (const ElfW(Phdr)* header = info->dlpi_phdr; header != info->dlpi_phdr + info->dlpi_phnum; ++header)
    if (header->p_type == PT_DYNAMIC) map.l_ld = reinterpret_cast<ElfW(Dyn)*>(info->dlpi_addr + header->p_vaddr);
  search.found = SymbolTable(map).address_of(search.name);
  return search.found != nullptr;
}

template <class Function>
Function late_function(const char* name) {
  return reinterpret_cast<Function>(find_in_late_library("libdl.so", name));
}

}  // namespace

void* find_in_late_library(const char* library, const char* name) {
  Search search{library, name, nullptr};
  dl_iterate_phdr(search_object, &search);
  return search.found;
}

// Called by a jump from our dlsym it leaves by one, as optimised code does: the real function looks at who called.
[[gnu::cold]] void* look_up_without_libdl(void* handle, const char* name) {
  if (const auto late = late_function<Dlsym>("dlsym")) return late(handle, name);
  if (handle == RTLD_NEXT || handle == RTLD_DEFAULT) {
    if (void* const found = handle == RTLD_NEXT ? next_definition(name) : first_definition(name)) return found;
    if (strcmp(name, "dlopen") == 0) return reinterpret_cast<void*>(&open_without_libdl);
    return strcmp(name, "dlclose") == 0 ? reinterpret_cast<void*>(&close_without_libdl) : nullptr;
  }
  const auto own = own_function<Dlsym>("__libc_dlsym");
  return own ? own(handle, name) : nullptr;
}

[[gnu::cold]] void* open_without_libdl(const char* file, int mode) {
  if (const auto late = late_function<Dlopen>("dlopen")) return late(file, mode);
  const auto own = own_function<Dlopen>("__libc_dlopen_mode");
  return own && file ? own(file, mode | kByTheCLibrary) : nullptr;
}

[[gnu::cold]] int close_without_libdl(void* handle) {
  using Close = int (*)(void*);
  if (const auto late = late_function<Close>("dlclose")) return late(handle);
  const auto own = own_function<Close>("__libc_dlclose");
  return own ? own(handle) : -1;
}

}  // namespace cistern
