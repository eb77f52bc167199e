// See lookup.hpp.
#include "shim/process/lookup.hpp"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>

#include "pool/base/lock.hpp"
#include "pool/base/symbol_table.hpp"
#include "shim/process/find_object.hpp"
#include "shim/process/uncounted.hpp"
#include "shim/process/without_libdl.hpp"

constinit cistern::Dlsym cistern_real_dlsym = nullptr;
constinit cistern::Dlopen cistern_real_dlopen = nullptr;

namespace cistern {
namespace {

#if defined(__aarch64__)
constexpr const char* kDlsymVersions[] = {"GLIBC_2.17"};
#else
constexpr const char* kDlsymVersions[] = {"GLIBC_2.2.5", "GLIBC_2.34"};
#endif

[[noreturn]] void die_without_dlsym() {
  constexpr char kLine[] = "cistern: the C library has no dlsym\n";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
  abort();
}

// Read from its own table; null where an old C library has it in another part.
Dlsym dlsym_of_c_library() {
  for (const link_map* module = _r_debug.r_map; module; module = module->l_next)
    if (is_c_library(*module)) return reinterpret_cast<Dlsym>(SymbolTable(*module).address_of("dlsym"));
  return nullptr;
}

// Takes back the message of a look-up of ours that failed: the next one that succeeds drops it. Asking dlerror for it
// would format the message, which brings printf into processes that have no other use for it.
void forget_failed_look_up() {
  if (!real_dlsym()(RTLD_NEXT, "malloc")) dlerror();
}

// Letter by letter: asked within malloc while a sanitizer starts, whose own memcmp and strlen can't be called yet.
bool file_name_starts_with(const char* path, std::string_view prefix) {
  const char* name = path ? path : "";
  for (const char* letter = name; *letter; ++letter)
    if (*letter == '/') name = letter + 1;
  for (const char letter : prefix)
    if (*name++ != letter) return false;
  return true;
}

struct LibrarySearch {
  std::string_view file_prefix;
  bool found;
};

int compare_library(dl_phdr_info* info, std::size_t, void* data) {
  auto* search = static_cast<LibrarySearch*>(data);
  search->found = file_name_starts_with(info->dlpi_name, search->file_prefix);
  return search->found;
}

// Opened late by a program that is linked with the other parts of an old C library, we have these not behind us.
[[gnu::cold]] void* find_in_other_part(const char* name) {
  void* const found = find_in_late_library("libdl.so", name);
  return found ? found : find_in_late_library("libpthread.so", name);
}

}  // namespace

// By version: an unversioned export such as ours never answers dlvsym. Every thread that races here finds the same.
Dlsym real_dlsym() {
  assert_no_lock_held();
  std::atomic_ref<Dlsym> known(cistern_real_dlsym);
  if (Dlsym found = known.load(std::memory_order_relaxed)) [[likely]]
    return found;
  // A library that stands before dlvsym may ask dlsym for the real one while we call it.
  known.store(dlsym_of_c_library(), std::memory_order_relaxed);
  for (const char* version : kDlsymVersions) {
    if (void* found = dlvsym(RTLD_NEXT, "dlsym", version)) {
      known.store(reinterpret_cast<Dlsym>(found), std::memory_order_relaxed);
      return reinterpret_cast<Dlsym>(found);
    }
  }
  if (void* found = find_in_late_library("libdl.so", "dlsym")) {
    known.store(reinterpret_cast<Dlsym>(found), std::memory_order_relaxed);
    return reinterpret_cast<Dlsym>(found);
  }
  die_without_dlsym();
}

Dlopen real_dlopen() {
  assert_no_lock_held();
  std::atomic_ref<Dlopen> known(cistern_real_dlopen);
  Dlopen found = known.load(std::memory_order_relaxed);
  if (!found) {
    found = reinterpret_cast<Dlopen>(next_symbol("dlopen"));
    known.store(found, std::memory_order_relaxed);
  }
  return found;
}

void* next_symbol(const char* name) {
  Uncounted uncounted;  // a failing look-up allocates its message
  void* found = real_dlsym()(RTLD_NEXT, name);
  if (!found) forget_failed_look_up();
  return found || c_library_finds_objects() ? found : find_in_other_part(name);
}

void* real_symbol(const char* name, const char* library_soname, Loading loading) {
  if (void* found = next_symbol(name)) return found;
  Uncounted uncounted;
  void* library =
      real_dlopen()(library_soname, RTLD_LAZY | RTLD_LOCAL | (loading == Loading::allowed ? 0 : RTLD_NOLOAD));
  void* found = library ? real_dlsym()(library, name) : nullptr;
  if (!found) forget_failed_look_up();
  return found;
}

LoadedLibrary::LoadedLibrary(const char* name) {
  Uncounted uncounted;
  handle_ = real_dlopen()(name, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle_) forget_failed_look_up();
}

// By the C library's own function: ours is for the program's calls.
LoadedLibrary::~LoadedLibrary() {
  Uncounted uncounted;
  if (handle_) reinterpret_cast<int (*)(void*)>(next_symbol("dlclose"))(handle_);
}

void* LoadedLibrary::find(const char* name) const {
  Uncounted uncounted;
  void* found = real_dlsym()(handle_, name);
  if (!found) forget_failed_look_up();
  return found;
}

// The program may have a function of that name that knows less, for its own unwinder.
link_map* module_of(const void* address) {
  dl_find_object object;
  if (_dl_find_object(const_cast<void*>(address), &object) != 0) return nullptr;
  if (!object.dlfo_link_map && find_object(address, object) != 0) return nullptr;
  return object.dlfo_link_map;
}

link_map* own_module() { return module_of(reinterpret_cast<const void*>(&own_module)); }

link_map* main_module() {
  link_map* module = own_module();
  while (module && module->l_prev) module = module->l_prev;
  return module;
}

bool is_c_library(const link_map& module) { return file_name_starts_with(module.l_name, "libc.so."); }

const link_map* c_library() {
  const link_map* module = main_module();
  while (module->l_next && !is_c_library(*module)) module = module->l_next;
  return module;
}

const link_map* first_module_with(const char* name, const link_map* from) {
  for (const link_map* module = from; module; module = module->l_next) {
    if (SymbolTable(*module).defines(name)) return module;
    if (is_c_library(*module)) return nullptr;
  }
  return nullptr;
}

const link_map* module_behind_us(const char* name) { return first_module_with(name, own_module()->l_next); }

// Under the linker's lock: the list is the program's to change.
String path_of_library_with(const char* name, const char* other_name) {
  struct Search {
    const char *name, *other_name;
    String path;
  } search{name, other_name, {}};
  Uncounted uncounted;
  dl_iterate_phdr(
      [](dl_phdr_info*, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        for (const link_map* module = main_module(); module && wanted.path.empty(); module = module->l_next) {
          if (module == own_module() || !module->l_name || !*module->l_name) continue;
          const SymbolTable symbols(*module);
          if (symbols.defines(wanted.name) && symbols.defines(wanted.other_name)) wanted.path = module->l_name;
        }
        return 1;
      },
      &search);
  return std::move(search.path);
}

namespace {
void* definition(const char* name, const link_map* from) {
  const link_map* const module = first_module_with(name, from);
  return module ? SymbolTable(*module).address_of(name) : nullptr;
}
}  // namespace

void* next_definition(const char* name) {
  const link_map* const next = own_module()->l_next;
  if (void* const found = definition(name, next)) return found;
  // Opened late, as a layer of OpenCL is, we stand behind all that the process started with, and interpose nothing.
  const link_map* before = own_module()->l_prev;
  while (before && !is_c_library(*before)) before = before->l_prev;
  return before ? definition(name, main_module()) : nullptr;
}
void* first_definition(const char* name) { return definition(name, main_module()); }

bool lies_in_library(const void* address, std::string_view file_prefix) {
  const link_map* module = module_of(address);
  return module && file_name_starts_with(module->l_name, file_prefix);
}

bool library_is_loaded(std::string_view file_prefix) {
  LibrarySearch search{file_prefix, false};
  dl_iterate_phdr(compare_library, &search);
  return search.found;
}

}  // namespace cistern
