// See owner.hpp.
#include "shim/host/owner.hpp"

#include <link.h>
#include <stddef.h>

#include <initializer_list>

#include "pool/base/symbol_table.hpp"
#include "pool/heap/blocks.hpp"
#include "shim/process/lookup.hpp"

namespace cistern::host {
namespace {

const char* next_name(const char* name) {
  while (*name++) continue;
  return name;
}

// One library brings all that is counted: where a size is another's answer, the block has a debugger's header.
bool is_whole(const SymbolTable& symbols) {
  for (const char* name :
       {"free", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign", "valloc", "malloc_usable_size"})
    if (!symbols.defines(name)) return false;
  return true;
}

// Not to be asked anything while it starts. The C library's own debugger has mtrace.
bool inspects(const SymbolTable& symbols) {
  return symbols.defines("__sanitizer_print_stack_trace") || symbols.defines("mtrace");
}

// Its tools that watch memory replace most of the family in the code of all who define them, unless the user forbids
// it. Their library stands before us; a tool without one has the common one only.
bool valgrind_replaced_malloc() {
  const auto is_tools = [](const link_map& module) {
    return lies_in_library(module.l_ld, "vgpreload_") && !lies_in_library(module.l_ld, "vgpreload_core");
  };
  const link_map* module = own_module();
  while (module && !is_tools(*module)) module = module->l_prev;
  if (!module) return false;
  const SymbolTable symbols(*own_module());
  void* const block = reinterpret_cast<void* (*)(std::size_t)>(symbols.address_of("malloc"))(1);
  const bool replaced = !host_pool::usable_bytes(block);
  reinterpret_cast<void (*)(void*)>(symbols.address_of("free"))(block);
  return replaced;
}

// A part of the program, or a layer that it opened, interposes nothing: whose malloc it calls is none of our business.
bool interposing() { return SymbolTable(*own_module()).defines("malloc") && module_behind_us("__libc_start_main"); }

}  // namespace

Ownership find_ownership() {
  const link_map* next = module_behind_us("malloc");
  if (!next) next = c_library();
  const bool next_is_c_library = is_c_library(*next);
  const auto owner = [&] {
    if (!interposing()) return Owner::us;
    if (defined_before_us("malloc\0")) return Owner::other;
    if (next_is_c_library) return valgrind_replaced_malloc() ? Owner::other : Owner::us;
    const SymbolTable behind(*next);
    return is_whole(behind) && !inspects(behind) ? Owner::behind_us : Owner::other;
  };
  return {owner(), next, next_is_c_library};
}

const link_map* owning_module() {
  const link_map* module = first_module_with("malloc", main_module());
  if (module == own_module()) module = module_behind_us("malloc");
  return !module || module == main_module() || is_c_library(*module) ? nullptr : module;
}

bool defined_before_us(const char* names) {
  for (const link_map* module = own_module()->l_prev; module; module = module->l_prev) {
    const SymbolTable symbols(*module);
    for (const char* name = names; *name; name = next_name(name))
      if (symbols.defines(name)) return true;
  }
  return false;
}

}  // namespace cistern::host
