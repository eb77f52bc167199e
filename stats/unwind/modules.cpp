// See modules.hpp.
#include "stats/unwind/modules.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>

#include "pool/base/file_status.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/page_size.hpp"
#include "pool/base/path.hpp"
#include "pool/base/private_descriptor.hpp"
#include "pool/base/process_start.hpp"
#include "pool/base/symbol_table.hpp"
#include "pool/base/system_call.hpp"
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

std::uint64_t word_at(const char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// A file that comes back to its old place is the same module again, but for one that was built anew.
bool matches(const Module& module, const dl_find_object& found) {
  return module.start == value(found.dlfo_map_start) && module.end == value(found.dlfo_map_end) &&
         module.name == found.dlfo_link_map->l_name && (!module.id_at || word_at(module.id_at) == module.id_word);
}

String hex(std::string_view bytes) {
  String text;
  for (const char byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// Where a link of /proc leads; empty: not to be had. Not read onto the stack, which may be a small one.
String target_of(const char* link) {
  if (!modules_look_at_files.load(std::memory_order_relaxed)) return {};
  String path(4096, '\0');
  const long length =
      system_call(SYS_readlinkat, static_cast<std::uintptr_t>(AT_FDCWD), value(link), value(path.data()), path.size());
  return length > 0 ? String(path, 0, static_cast<std::size_t>(length)) : String();
}

String program_path() {
  if (String path = target_of("/proc/self/exe"); !path.empty()) return path;
  const auto* executed = reinterpret_cast<const char*>(start_value(AT_EXECFN));
  return executed ? executed : "";
}

// The program may go to another directory before the report is made.
String absolute(const String& name) {
  if (name.starts_with('/') || name.find('/') == String::npos) return name;
  const String directory = target_of("/proc/self/cwd");
  return directory.starts_with('/') ? directory + "/" + name : name;
}

FileIdentity identity_of(const struct stat& file) {
  return {file.st_dev, file.st_ino, static_cast<std::uint64_t>(file.st_size), file.st_mtim.tv_sec,
          file.st_mtim.tv_nsec};
}

FileIdentity identity_of(const String& path) {
  struct stat file;
  if (!modules_look_at_files.load(std::memory_order_relaxed)) return {};
  if (status_of_file(path.c_str(), file)) return {};
  return identity_of(file);
}

// A plugin with a static CUDA runtime in it exports cudaMalloc too, and all else of that.
bool interposes_calls(const link_map& module) {
  const SymbolTable symbols(module);
  return symbols.defines("clInitLayer") || symbols.defines("clCreateBuffer") || symbols.defines("cuMemAlloc_v2") ||
         (symbols.defines("cudaMalloc") && !symbols.defines("__cudaRegisterFatBinary"));
}

Module describe(const dl_find_object& found) {
  Module module{};
  module.start = value(found.dlfo_map_start);
  module.end = value(found.dlfo_map_end);
  module.bias = found.dlfo_link_map->l_addr;
  module.name = found.dlfo_link_map->l_name;
  const auto inside = [&module](std::uintptr_t address) { return module.start <= address && address < module.end; };
  module.is_program = found.dlfo_link_map == _r_debug.r_map;
  const bool holds_us = inside(value(&known_modules));
  module.is_own = holds_us && !linked_into_another.load(std::memory_order_relaxed);
  module.is_permanent = module.is_program || holds_us || inside(reinterpret_cast<std::uintptr_t>(&readlink));
  module.path = module.is_program && module.name.empty() ? program_path() : absolute(module.name);
  // Of a program with gaps between its segments, which the kernel maps, the C library tells the code alone.
  const std::uintptr_t headers = module.is_program ? start_value(AT_PHDR) & ~(kLeastPageBytes - 1) : 0;
  const auto* const start = reinterpret_cast<const char*>(headers ? headers : module.start);
  const std::string_view id = build_id_of(start, reinterpret_cast<const char*>(module.end), &module.bias);
  module.build_id = hex(id);
  if (id.size() >= sizeof module.id_word && id.data() + id.size() <= start + kLeastPageBytes) {
    module.id_at = id.data();
    module.id_word = word_at(id.data());
  }
  if (id.empty() && !module.is_permanent) module.file = identity_of(module.path);
  const std::string_view file = basename_of(module.path);
  for (const std::string_view name : {"libOpenCL.so", "libcudart", "libcuda.so", "libcistern", "libffi.so"})
    module.forwards_calls = module.forwards_calls || file.starts_with(name);
  module.may_forward = module.forwards_calls || (!module.is_program && interposes_calls(*found.dlfo_link_map));
  return module;
}

// Under the lock.
const Module* known_module(const dl_find_object& found) {
  const Node* node = known_modules;
  while (node && !matches(node->module, found)) node = node->next;
  return node ? &node->module : nullptr;
}

// False, here and below: a thread forks. Null: it is not known yet.
bool look_up(const dl_find_object& found, const Module*& module) {
  const LockedUnlessForking hold(modules_lock);
  if (hold) module = known_module(found);
  return static_cast<bool>(hold);
}

// The interpreter in the same step: whoever knows the module knows of it.
bool note(Node* made, const dl_find_object& found, const std::optional<python::Interpreter>& interpreter,
          const Module*& module) {
  const LockedUnlessForking hold(modules_lock);
  if (!hold) return false;
  module = known_module(found);
  if (module) return true;
  if (interpreter) python::note_interpreter(*interpreter);
  made->next = known_modules;
  known_modules = made;
  module = &made->module;
  return true;
}

}  // namespace

bool allocates_for_callers(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"libc.so.", "libstdc++.so.", "libc++.so.", "libglib-2.0.so."};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool module_at(std::uintptr_t address, const Module*& module) {
  module = nullptr;
  dl_find_object found;
  if (!find(address, found)) return true;
  if (!look_up(found, module)) return false;
  if (module) return true;
  // The C library and an interpreter are asked, so no lock is held; another thread may be faster.
  assert_no_lock_held();
  void* const room = internal_try_allocate(sizeof(Node));
  if (!room) return false;
  auto* const made = new (room) Node{describe(found), nullptr};
  const std::optional<python::Interpreter> interpreter = python::interpreter_in(found);
  const bool known = note(made, found, interpreter, module);
  if (module == &made->module) return true;
  made->~Node();
  internal_deallocate(made, sizeof(Node));
  return known;
}

bool lies_in(const Module& module, std::uintptr_t address) {
  dl_find_object found;
  return find(address, found) && matches(module, found);
}

bool is_loaded(const Module& module) {
  const auto compare = [](dl_phdr_info* info, std::size_t, void* wanted) -> int {
    const auto& module = *static_cast<const Module*>(wanted);
    return info->dlpi_addr == module.bias && module.name == info->dlpi_name &&
           (!module.id_at || word_at(module.id_at) == module.id_word);
  };
  return dl_iterate_phdr(compare, const_cast<Module*>(&module)) != 0;
}

bool has_file_still(const Module& module) {
  constexpr std::uintptr_t kFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const int opened =
      keep_apart(system_call(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD), value(module.path.c_str()), kFlags));
  if (opened < 0) return false;
  const auto descriptor = static_cast<std::uintptr_t>(opened);
  struct stat file;
  bool same = system_call(SYS_fstat, descriptor, value(&file)) == 0 && S_ISREG(file.st_mode) && file.st_size > 0;
  if (same && module.build_id.empty()) {
    same = module.file.inode && identity_of(file) == module.file;
  } else if (same) {
    const auto bytes = static_cast<std::size_t>(file.st_size);
    const long mapped = system_call(SYS_mmap, 0, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const auto* const start = reinterpret_cast<const char*>(mapped);
    same = mapped > 0 && hex(build_id_of(start, start + bytes, nullptr)) == module.build_id;
    if (mapped > 0) system_call(SYS_munmap, static_cast<std::uintptr_t>(mapped), bytes);
  }
  system_call(SYS_close, descriptor);
  return same;
}

void modules_before_fork() { modules_lock.lock_for_fork(); }
void modules_after_fork() { modules_lock.unlock_after_fork(); }

}  // namespace cistern
