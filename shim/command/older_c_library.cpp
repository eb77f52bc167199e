// The C++ runtime that is linked into the command is newer than the oldest C library that the command runs with. This
// file has the symbols that it takes from newer ones.
#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace {

// Whether the module holds the address; then what the unwinder wants to know of it.
bool describe(const dl_phdr_info& module, std::uintptr_t address, dl_find_object& found) {
  const auto place = [&](const ElfW(Phdr) & header) { return module.dlpi_addr + header.p_vaddr; };
  bool holds = false;
  const void* unwind_tables = nullptr;
  for (const ElfW(Phdr)* header = module.dlpi_phdr; header != module.dlpi_phdr + module.dlpi_phnum; ++header) {
    if (header->p_type == PT_LOAD) holds |= address - place(*header) < header->p_memsz;
    if (header->p_type == PT_GNU_EH_FRAME) unwind_tables = reinterpret_cast<const void*>(place(*header));
  }
  if (!holds || !unwind_tables) return false;
  found = {};
  found.dlfo_eh_frame = const_cast<void*>(unwind_tables);
  return true;
}

}  // namespace

// For the command alone: what is preloaded into it has the C library's.
asm(".hidden _dl_find_object\n.hidden __libc_single_threaded");

extern "C" {

// 2.32. False: shared pointers count with atomic instructions.
char __libc_single_threaded = 0;

// 2.35. The map's bounds stay empty: only who keeps answers needs them.
int _dl_find_object(void* pc, dl_find_object* found) {
  struct Look {
    std::uintptr_t address;
    dl_find_object& found;
  } look{reinterpret_cast<std::uintptr_t>(pc), *found};
  const auto visit = [](dl_phdr_info* module, std::size_t, void* data) {
    const auto& asked = *static_cast<Look*>(data);
    return static_cast<int>(describe(*module, asked.address, asked.found));
  };
  return dl_iterate_phdr(visit, &look) ? 0 : -1;
}
}
