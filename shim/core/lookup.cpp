// See lookup.hpp.
#include "shim/core/lookup.hpp"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>

#include "shim/core/core.hpp"

constinit cistern::Dlsym cistern_real_dlsym = nullptr;

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

// Takes back the message of a look-up of ours that failed: the next one that succeeds drops it. Asking dlerror for it
// would format the message, which brings printf into processes that have no other use for it.
void forget_failed_look_up() {
  if (!real_dlsym()(RTLD_NEXT, "malloc")) dlerror();
}

std::string_view file_name(const char* path) {
  const std::string_view whole = path ? path : "";
  const std::size_t slash = whole.rfind('/');
  return slash == std::string_view::npos ? whole : whole.substr(slash + 1);
}

struct LibrarySearch {
  std::string_view file_prefix;
  bool found;
};

int compare_library(dl_phdr_info* info, std::size_t, void* data) {
  auto* search = static_cast<LibrarySearch*>(data);
  search->found = file_name(info->dlpi_name).starts_with(search->file_prefix);
  return search->found;
}

}  // namespace

// By version: an unversioned export such as ours never answers dlvsym. Every thread that races here finds the same.
Dlsym real_dlsym() {
  std::atomic_ref<Dlsym> known(cistern_real_dlsym);
  if (Dlsym found = known.load(std::memory_order_relaxed)) [[likely]]
    return found;
  for (const char* version : kDlsymVersions) {
    if (void* found = dlvsym(RTLD_NEXT, "dlsym", version)) {
      known.store(reinterpret_cast<Dlsym>(found), std::memory_order_relaxed);
      return reinterpret_cast<Dlsym>(found);
    }
  }
  die_without_dlsym();
}

void* next_symbol(const char* name) {
  host::Uncounted uncounted;  // a failing look-up allocates its message
  void* found = real_dlsym()(RTLD_NEXT, name);
  if (!found) forget_failed_look_up();
  return found;
}

void* real_symbol(const char* name, const char* library_soname, Loading loading) {
  if (void* found = next_symbol(name)) return found;
  host::Uncounted uncounted;
  void* library = dlopen(library_soname, RTLD_LAZY | RTLD_LOCAL | (loading == Loading::allowed ? 0 : RTLD_NOLOAD));
  void* found = library ? real_dlsym()(library, name) : nullptr;
  if (!found) forget_failed_look_up();
  return found;
}

LoadedLibrary::LoadedLibrary(const char* name) {
  host::Uncounted uncounted;
  handle_ = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle_) forget_failed_look_up();
}

// By the C library's own function: ours is for the program's calls.
LoadedLibrary::~LoadedLibrary() {
  host::Uncounted uncounted;
  if (handle_) reinterpret_cast<int (*)(void*)>(next_symbol("dlclose"))(handle_);
}

void* LoadedLibrary::find(const char* name) const {
  host::Uncounted uncounted;
  void* found = real_dlsym()(handle_, name);
  if (!found) forget_failed_look_up();
  return found;
}

link_map* module_of(const void* address) {
  dl_find_object object;
  return _dl_find_object(const_cast<void*>(address), &object) == 0 ? object.dlfo_link_map : nullptr;
}

link_map* own_module() { return module_of(reinterpret_cast<const void*>(&own_module)); }

link_map* main_module() {
  link_map* module = own_module();
  while (module && module->l_prev) module = module->l_prev;
  return module;
}

bool lies_in_library(const void* address, std::string_view file_prefix) {
  const link_map* module = module_of(address);
  return module && file_name(module->l_name).starts_with(file_prefix);
}

bool library_is_loaded(std::string_view file_prefix) {
  LibrarySearch search{file_prefix, false};
  dl_iterate_phdr(compare_library, &search);
  return search.found;
}

}  // namespace cistern
