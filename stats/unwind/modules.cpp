// See modules.hpp.
#include "stats/unwind/modules.hpp"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <new>

#include "pool/base/lock.hpp"
#include "pool/base/path.hpp"
#include "stats/python/interpreter.hpp"
#include "stats/unwind/build_id.hpp"

namespace cistern {
namespace {

constinit Lock modules_lock;
struct Node {
  Module module;
  Node* next;
};
constinit Node* known_modules = nullptr;

std::uintptr_t value(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

bool find(std::uintptr_t address, dl_find_object& found) {
  return _dl_find_object(reinterpret_cast<void*>(address), &found) == 0;
}

// A file that comes back to its old place is the same module again.
bool matches(const Module& module, const dl_find_object& found) {
  return module.start == value(found.dlfo_map_start) && module.end == value(found.dlfo_map_end) &&
         module.name == found.dlfo_link_map->l_name;
}

String hex(std::string_view bytes) {
  String text;
  for (const char byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

String program_path() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length > 0) return String(path, static_cast<std::size_t>(length));
  const auto* executed = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return executed ? executed : "";
}

Module describe(const dl_find_object& found) {
  Module module{};
  module.start = value(found.dlfo_map_start);
  module.end = value(found.dlfo_map_end);
  module.bias = found.dlfo_link_map->l_addr;
  module.name = found.dlfo_link_map->l_name;
  const auto inside = [&module](std::uintptr_t address) { return module.start <= address && address < module.end; };
  module.is_program = inside(getauxval(AT_PHDR));
  const bool holds_us = inside(value(&known_modules));
  module.is_own = holds_us && !linked_into_another.load(std::memory_order_relaxed);
  module.is_permanent = module.is_program || holds_us || inside(reinterpret_cast<std::uintptr_t>(&readlink));
  module.path = module.is_program && module.name.empty() ? program_path() : module.name;
  module.build_id = hex(
      build_id_of(reinterpret_cast<const char*>(module.start), reinterpret_cast<const char*>(module.end), module.bias));
  const std::string_view file = basename_of(module.path);
  for (const std::string_view name : {"libOpenCL.so", "libcudart", "libcuda.so", "libcistern", "libffi.so"})
    module.forwards_calls = module.forwards_calls || file.starts_with(name);
  return module;
}

}  // namespace

bool module_at(std::uintptr_t address, const Module*& module) {
  module = nullptr;
  dl_find_object found;
  if (!find(address, found)) return true;
  const LockedUnlessForking hold(modules_lock);
  if (!hold) return false;
  for (const Node* node = known_modules; node && !module; node = node->next)
    if (matches(node->module, found)) module = &node->module;
  if (!module) {
    void* const room = internal_try_allocate(sizeof(Node));
    if (!room) return false;
    known_modules = new (room) Node{describe(found), known_modules};
    module = &known_modules->module;
    python::look_for_interpreter(found);
  }
  return true;
}

bool lies_in(const Module& module, std::uintptr_t address) {
  dl_find_object found;
  return find(address, found) && matches(module, found);
}

bool is_loaded(const Module& module) {
  const auto compare = [](dl_phdr_info* info, std::size_t, void* wanted) -> int {
    const auto& module = *static_cast<const Module*>(wanted);
    return info->dlpi_addr == module.bias && module.name == info->dlpi_name;
  };
  return dl_iterate_phdr(compare, const_cast<Module*>(&module)) != 0;
}

void modules_before_fork() { modules_lock.lock_for_fork(); }
void modules_after_fork() { modules_lock.unlock_after_fork(); }

}  // namespace cistern
