// See modules.hpp.
#include "stats/unwind/modules.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "pool/base/lock.hpp"

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

void append_hex(String& text, const unsigned char* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
}

// The GNU build id among the notes at [note, end).
String build_id_of(const char* note, const char* end, std::size_t alignment) {
  const auto padded = [alignment](std::size_t bytes) { return (bytes + alignment - 1) & ~(alignment - 1); };
  while (static_cast<std::size_t>(end - note) > sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note, sizeof header);
    const std::size_t description = sizeof header + padded(header.n_namesz);
    const std::size_t size = description + padded(header.n_descsz);
    if (size > static_cast<std::size_t>(end - note)) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && !std::memcmp(note + sizeof header, "GNU", 4)) {
      String id;
      append_hex(id, reinterpret_cast<const unsigned char*>(note) + description, header.n_descsz);
      return id;
    }
    note += size;
  }
  return {};
}

// Read from the loaded image, whose first page holds the ELF header: dl_iterate_phdr would take the linker's lock.
String build_id_of(const Module& module) {
  ElfW(Ehdr) header;
  if (module.end - module.start < sizeof header) return {};
  std::memcpy(&header, reinterpret_cast<const void*>(module.start), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr))) return {};
  const std::size_t table_end = header.e_phoff + header.e_phnum * sizeof(ElfW(Phdr));
  if (table_end > module.end - module.start) return {};
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(module.start + header.e_phoff);
  for (int i = 0; i < header.e_phnum; ++i) {
    const std::uintptr_t start = module.bias + segments[i].p_vaddr;
    if (segments[i].p_type != PT_NOTE || start < module.start || start + segments[i].p_memsz > module.end) continue;
    const auto* note = reinterpret_cast<const char*>(start);
    String id = build_id_of(note, note + segments[i].p_memsz, segments[i].p_align == 8 ? 8 : 4);
    if (!id.empty()) return id;
  }
  return {};
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
  module.is_own = inside(value(&known_modules));
  module.is_permanent = module.is_program || module.is_own || inside(reinterpret_cast<std::uintptr_t>(&readlink));
  module.path = module.is_program && module.name.empty() ? program_path() : module.name;
  module.build_id = build_id_of(module);
  const std::string_view file = basename_of(module.path);
  for (const std::string_view name : {"libOpenCL.so", "libcudart", "libcuda.so", "libcistern", "libffi.so"})
    module.forwards_calls = module.forwards_calls || file.starts_with(name);
  return module;
}

}  // namespace

std::string_view basename_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool module_at(std::uintptr_t address, const Module*& module) {
  module = nullptr;
  dl_find_object found;
  if (!find(address, found)) return true;
  const LockedUnlessForking hold(modules_lock);
  if (!hold) return false;
  for (const Node* node = known_modules; node && !module; node = node->next)
    if (matches(node->module, found)) module = &node->module;
  if (!module) {
    known_modules = new (internal_allocate(sizeof(Node))) Node{describe(found), known_modules};
    module = &known_modules->module;
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
