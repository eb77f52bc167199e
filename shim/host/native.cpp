// See native.hpp.
#include "shim/host/native.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>

#include "pool/base/lock.hpp"
#include "pool/base/symbol_table.hpp"
#include "shim/host/owner.hpp"
#include "shim/process/lookup.hpp"

namespace cistern::host {
namespace {

constinit Lock publish_lock;
constinit Native shared_functions;
constinit std::atomic<bool> functions_ready{false};
constinit std::atomic<bool> c_library_serves{true};
constinit std::atomic<Owner> owner{Owner::us};
constinit Native shared_operators;
constinit std::atomic<bool> operators_ready{false};

template <class Function>
void find_next(Function& member, const char* name) {
  member = reinterpret_cast<Function>(real_dlsym()(RTLD_NEXT, name));
}

// From its own table, whatever other libraries export.
void use_c_library(Native& functions, const SymbolTable& c_library) {
#define USE(name) functions.name = reinterpret_cast<decltype(functions.name)>(c_library.address_of(#name))
  USE(malloc);
  USE(free);
  USE(calloc);
  USE(realloc);
  USE(memalign);
  USE(valloc);
  USE(pvalloc);
  USE(aligned_alloc);
  USE(posix_memalign);
  USE(malloc_usable_size);
  USE(malloc_trim);
  USE(mallopt);
  USE(mallinfo);
  USE(mallinfo2);
  USE(malloc_info);
  USE(malloc_stats);
#undef USE
}

// What the other allocator lacks falls to the C library's, as without us.
void use_next(Native& functions) {
#define HOST_OPERATOR(result, name, parameters, arguments)
#define HOST_CALL(action, result, name, parameters, arguments) \
  functions.name = reinterpret_cast<decltype(functions.name)>(next_definition(#name));
#include "shim/symbols/host.def"
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
  const Ownership ownership = find_ownership();
  if (ownership.owner == Owner::us && ownership.next_is_c_library) {
    use_c_library(found, SymbolTable(*ownership.next));
  } else {
    use_next(found);
  }
  owner.store(ownership.owner, std::memory_order_relaxed);
  c_library_serves.store(ownership.next_is_c_library, std::memory_order_relaxed);
  publish(found, shared_functions, functions_ready);
}

bool is_part_of_c_library(const link_map& module) {
  for (const char* name : {"libc.so.", "libm.so.", "ld-linux", "libdl.so.", "libpthread.so."})
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
#define HOST_OPERATOR(result, name, parameters, arguments) find_next(found.name, #name);
#include "shim/symbols/host.def"
  }
  publish(found, shared_operators, operators_ready);
}

}  // namespace

// The C library's malloc begins at its first call, and expects that to come before a second thread is there. Without us
// it does: whoever starts one allocates. Also, at a fork it takes its locks only if it was begun before. A setting that
// does not exist begins it and changes nothing.
void prepare_native() {
  if (native_is_c_library()) native().mallopt(0, 0);
}

void native_before_fork() { publish_lock.lock_for_fork(); }
void native_after_fork() { publish_lock.unlock_after_fork(); }

Owner native_owner() {
  native();
  return owner.load(std::memory_order_relaxed);
}

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
