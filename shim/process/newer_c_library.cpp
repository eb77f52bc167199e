// The functions of C libraries newer than 2.28 that this code uses. Each one calls the real function where it is there
// (a weak reference, which the loader fills in), and a substitute elsewhere. The linker sends every call here, those of
// the C++ runtime that is linked in too (--wrap, scripts/cmake/c_library.cmake has the list). Functions that have moved
// into libc.so.6 since then are among them. A library that is linked to libdl or libpthread would bring these into
// programs without threads, where the C library and others take shorter ways.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include <atomic>
#include <cstdint>

#include "pool/base/symbol_table.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/find_object.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/without_libdl.hpp"

#define NEWER(result, name, ...)              \
  [[gnu::weak]] decltype(name) __real_##name; \
  [[gnu::visibility("hidden")]] result __wrap_##name(__VA_ARGS__)

namespace {

// Once libpthread is there, for keys that were asked for before.
struct Key {
  void (*destructor)(void*);
  std::atomic<bool> taken, made;
  pthread_key_t key;
};
constexpr pthread_key_t kFirstPromised = 1U << 30;  // no real key is as large
constinit Key promised_keys[8] = {};

int ask_kernel_for_cpu(unsigned* processor, unsigned* node) {
  const auto address_of = [](unsigned* number) { return reinterpret_cast<std::uintptr_t>(number); };
  return cistern::system_call(SYS_getcpu, address_of(processor), address_of(node)) < 0 ? -1 : 0;
}

}  // namespace

extern "C" {

// 2.35
NEWER(int, _dl_find_object, void* address, dl_find_object* found) {
  return __real__dl_find_object ? __real__dl_find_object(address, found) : cistern::find_object(address, *found);
}

// 2.34: before, libdl has these.
NEWER(void*, dlvsym, void* handle, const char* name, const char* version) {
  if (__real_dlvsym) [[likely]]
    return __real_dlvsym(handle, name, version);
  using Dlvsym = decltype(&dlvsym);
  if (const auto late = reinterpret_cast<Dlvsym>(cistern::find_in_late_library("libdl.so", "dlvsym")))
    return late(handle, name, version);
  return strcmp(name, "dlsym") == 0 ? reinterpret_cast<void*>(&cistern::look_up_without_libdl) : nullptr;
}

NEWER(void*, dlsym, void* handle, const char* name) {
  return __real_dlsym ? __real_dlsym(handle, name) : cistern::look_up_without_libdl(handle, name);
}
NEWER(void*, dlopen, const char* file, int mode) {
  return __real_dlopen ? __real_dlopen(file, mode) : cistern::open_without_libdl(file, mode);
}
NEWER(int, dlclose, void* handle) {
  return __real_dlclose ? __real_dlclose(handle) : cistern::close_without_libdl(handle);
}
NEWER(char*, dlerror) { return __real_dlerror ? __real_dlerror() : nullptr; }

NEWER(int, dladdr1, const void* address, Dl_info* info, void** map, int flags) {
  if (__real_dladdr1) return __real_dladdr1(address, info, map, flags);
  dl_find_object found;
  if (cistern::find_object(address, found) != 0) return 0;
  *info = {found.dlfo_link_map->l_name, found.dlfo_map_start, nullptr, nullptr};
  if (flags == RTLD_DL_LINKMAP) *map = found.dlfo_link_map;
  return 1;
}
NEWER(int, dladdr, const void* address, Dl_info* info) {
  return __real_dladdr ? __real_dladdr(address, info) : __wrap_dladdr1(address, info, nullptr, 0);
}

// 2.34: before, libpthread has these. The first thread's values have no destructors to come; another thread there is
// only once libpthread has been loaded, and then its keys can be made.
NEWER(int, pthread_key_create, pthread_key_t* key, void (*destructor)(void*)) {
  if (__real_pthread_key_create) [[likely]]
    return __real_pthread_key_create(key, destructor);
  for (Key& promised : promised_keys) {
    if (promised.taken.exchange(true)) continue;
    promised.destructor = destructor;
    *key = kFirstPromised + static_cast<pthread_key_t>(&promised - promised_keys);
    return 0;
  }
  return EAGAIN;
}

NEWER(int, pthread_setspecific, pthread_key_t key, const void* value) {
  if (__real_pthread_setspecific) [[likely]]
    return __real_pthread_setspecific(key, value);
  const auto create = reinterpret_cast<decltype(&pthread_key_create)>(
      cistern::find_in_late_library("libpthread.so", "pthread_key_create"));
  const auto set = reinterpret_cast<decltype(&pthread_setspecific)>(
      cistern::find_in_late_library("libpthread.so", "pthread_setspecific"));
  if (!create || !set) return 0;
  Key& promised = promised_keys[key - kFirstPromised];
  if (!promised.made.load(std::memory_order_acquire)) {
    pthread_key_t made;
    if (create(&made, promised.destructor) != 0) return EAGAIN;
    promised.key = made;
    promised.made.store(true, std::memory_order_release);
  }
  return set(promised.key, value);
}

// 2.32: before, libpthread has it, and libc.so.6 one that does the same and answers otherwise.
NEWER(int, pthread_sigmask, int how, const sigset_t* set, sigset_t* before) {
  if (__real_pthread_sigmask) [[likely]]
    return __real_pthread_sigmask(how, set, before);
  const int kept = errno;
  const int error = sigprocmask(how, set, before) == 0 ? 0 : errno;
  errno = kept;
  return error;
}

// 2.32. For a known number, strerror_r returns its own text.
NEWER(const char*, strerrordesc_np, int error) {
  if (__real_strerrordesc_np) return __real_strerrordesc_np(error);
  static char unknown[64];
  return strerror_r(error, unknown, sizeof unknown);
}

// 2.29: looked for, not referred to, for the C library that this is linked with may have it and name its version.
[[gnu::visibility("hidden")]] int __wrap_getcpu(unsigned* processor, unsigned* node) {
  using GetCpu = int (*)(unsigned*, unsigned*);
  static constinit std::atomic<GetCpu> known{nullptr};
  GetCpu get = known.load(std::memory_order_relaxed);
  if (!get) {
    get = reinterpret_cast<GetCpu>(cistern::SymbolTable(*cistern::c_library()).address_of("getcpu"));
    known.store(get ? get : get = ask_kernel_for_cpu, std::memory_order_relaxed);
  }
  return get(processor, node);
}

}  // extern "C"
