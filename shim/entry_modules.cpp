// dl_iterate_phdr as our own code and what is linked into it call it (the linker's --wrap). In a child forked by one of
// several threads the lock of the dynamic linker may be held by a thread that does not exist there; the program need
// never ask for it, and a report must not hang for it. There the list is read as it lies: nobody else is at work. Of a
// module that was about to be loaded the C library's own index knows nothing yet; of one that was about to be unloaded
// the memory may have gone already.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>

#include "pool/base/lock.hpp"
#include "shim/host/c_library.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"

namespace {

using Visit = int (*)(dl_phdr_info* info, std::size_t size, void* data);

// False: it is not, or not yet, a whole module.
bool describe(const link_map& module, dl_phdr_info& info) {
  dl_find_object found;
  if (!module.l_ld || _dl_find_object(module.l_ld, &found) != 0 || found.dlfo_link_map != &module) return false;
  if (!cistern::host::is_mapped(found.dlfo_map_start)) return false;
  ElfW(Ehdr) header;
  std::memcpy(&header, found.dlfo_map_start, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  info.dlpi_addr = module.l_addr;
  info.dlpi_name = module.l_name;
  info.dlpi_phdr = reinterpret_cast<const ElfW(Phdr)*>(static_cast<const char*>(found.dlfo_map_start) + header.e_phoff);
  info.dlpi_phnum = header.e_phnum;
  return true;
}

int visit_unlocked(Visit visit, void* data) {
  unsigned long long modules = 0;
  for (const link_map* module = cistern::main_module(); module; module = module->l_next) ++modules;
  for (link_map* module = cistern::main_module(); module; module = module->l_next) {
    dl_phdr_info info{};
    if (!describe(*module, info)) continue;
    info.dlpi_adds = modules;
    if (const int answer = visit(&info, sizeof info, data)) return answer;
  }
  return 0;
}

}  // namespace

extern "C" {

int __real_dl_iterate_phdr(Visit visit, void* data);

[[gnu::visibility("hidden")]] int __wrap_dl_iterate_phdr(Visit visit, void* data) {
  cistern::assert_no_lock_held();
  return cistern::forked_beside_threads() ? visit_unlocked(visit, data) : __real_dl_iterate_phdr(visit, data);
}
}
