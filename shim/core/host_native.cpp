// See host_native.hpp.
#include "shim/core/host_native.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>

#include "pool/lock.hpp"
#include "shim/core/lookup.hpp"

namespace cistern::host {
namespace {

#if defined(__aarch64__)
constexpr char kFirstVersion[] = "GLIBC_2.17";
constexpr char kAlignedAllocVersion[] = "GLIBC_2.17";
constexpr char kMallocInfoVersion[] = "GLIBC_2.17";
#else
constexpr char kFirstVersion[] = "GLIBC_2.2.5";
constexpr char kAlignedAllocVersion[] = "GLIBC_2.16";
constexpr char kMallocInfoVersion[] = "GLIBC_2.10";
#endif

constinit Lock publish_lock;
constinit Native shared_functions;
constinit std::atomic<bool> functions_ready{false};
constinit std::atomic<bool> c_library_serves{true};
constinit Native shared_operators;
constinit std::atomic<bool> operators_ready{false};

constexpr bool is_operator(const char* name) { return name[0] == '_' && name[1] == 'Z'; }

template <class Function>
void find_next(Function& member, const char* name) {
  member = reinterpret_cast<Function>(real_dlsym()(RTLD_NEXT, name));
}

// A version names the C library's own function, whatever other libraries export.
template <class Function>
void find_in_c_library(Function& member, const char* name, const char* version) {
  member = reinterpret_cast<Function>(dlvsym(RTLD_NEXT, name, version));
}

bool c_library_is_next() {
  Native next, c_library;
  find_next(next.malloc, "malloc");
  find_in_c_library(c_library.malloc, "malloc", kFirstVersion);
  return next.malloc == c_library.malloc;
}

void use_c_library(Native& functions) {
  const auto find = [](auto& member, const char* name) { find_in_c_library(member, name, kFirstVersion); };
  find(functions.malloc, "malloc");
  find(functions.free, "free");
  find(functions.calloc, "calloc");
  find(functions.realloc, "realloc");
  find(functions.memalign, "memalign");
  find(functions.valloc, "valloc");
  find(functions.pvalloc, "pvalloc");
  find(functions.posix_memalign, "posix_memalign");
  find(functions.malloc_usable_size, "malloc_usable_size");
  find(functions.malloc_trim, "malloc_trim");
  find(functions.mallopt, "mallopt");
  find(functions.mallinfo, "mallinfo");
  find(functions.malloc_stats, "malloc_stats");
  find_in_c_library(functions.aligned_alloc, "aligned_alloc", kAlignedAllocVersion);
  find_in_c_library(functions.malloc_info, "malloc_info", kMallocInfoVersion);
  find_in_c_library(functions.mallinfo2, "mallinfo2", "GLIBC_2.33");
}

// What the other allocator lacks falls to the C library's, as without us.
void use_next_allocator(Native& functions) {
  find_next(functions.malloc, "malloc");
  find_next(functions.free, "free");
  find_next(functions.calloc, "calloc");
  find_next(functions.realloc, "realloc");
  find_next(functions.memalign, "memalign");
  find_next(functions.valloc, "valloc");
  find_next(functions.pvalloc, "pvalloc");
  find_next(functions.aligned_alloc, "aligned_alloc");
  find_next(functions.posix_memalign, "posix_memalign");
  find_next(functions.malloc_usable_size, "malloc_usable_size");
  find_next(functions.malloc_trim, "malloc_trim");
  find_next(functions.mallopt, "mallopt");
  find_next(functions.mallinfo, "mallinfo");
  find_next(functions.mallinfo2, "mallinfo2");
  find_next(functions.malloc_info, "malloc_info");
  find_next(functions.malloc_stats, "malloc_stats");
}

// Look-ups take the loader's lock, so ours is held only to publish: a constructor that allocates runs under the
// loader's.
void publish(const Native& found, Native& shared, std::atomic<bool>& ready) {
  Locked hold(publish_lock);
  if (ready.load(std::memory_order_relaxed)) return;
  shared = found;
  ready.store(true, std::memory_order_release);
}

void find_functions() {
  Native found;
  const bool own = c_library_is_next();
  if (own) {
    use_c_library(found);
  } else {
    use_next_allocator(found);
  }
  c_library_serves.store(own, std::memory_order_relaxed);
  publish(found, shared_functions, functions_ready);
}

bool is_part_of_c_library(const link_map& module) {
  for (const char* name : {"libc.so.", "libm.so.", "ld-linux"})
    if (lies_in_library(module.l_ld, name)) return true;
  return false;
}

// Nothing else stands behind us: then nobody has operators, and a failing look-up, which would be the one thing that
// allocates at the start of a small program, is spared. The list of modules has the global order.
bool alone_with_c_library() {
  for (const link_map* module = own_module(); module && (module = module->l_next);)
    if (!is_part_of_c_library(*module)) return false;
  return true;
}

// Where one operator is missing all are: the first miss costs a message, the others are not asked for.
void find_operators() {
  Native found;
  if (!alone_with_c_library() && next_symbol("_Znwm")) {
#define HOST_CALL(action, result, name, parameters, arguments) \
  if (is_operator(#name)) find_next(found.name, #name);
#include "shim/symbols.def"
  }
  publish(found, shared_operators, operators_ready);
}

}  // namespace

bool native_is_c_library() {
  native();
  return c_library_serves.load(std::memory_order_relaxed);
}

const Native& native() {
  if (!functions_ready.load(std::memory_order_acquire)) [[unlikely]]
    find_functions();
  return shared_functions;
}

const Native& native_operators() {
  if (!operators_ready.load(std::memory_order_acquire)) [[unlikely]]
    find_operators();
  return shared_operators;
}

void* late_operator(const char* name) {
  for (const char* runtime : {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"}) {
    if (void* found = real_symbol(name, runtime)) return found;
  }
  return nullptr;
}

}  // namespace cistern::host
