// See lifecycle_layer.hpp.
#include "shim/lifecycle_layer.hpp"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <span>

#include "pool/base/page_size.hpp"
#include "pool/base/process_start.hpp"
#include "pool/base/symbol_table.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/lookup.hpp"

namespace cistern {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kAddressTypes[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT};
#else
constexpr std::uint32_t kAddressTypes[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT};
#endif

// By name: what a call of ours reaches is the C library's, as for everybody. Null: not one of those that end the
// process.
void* our_export(const char* name) {
  constexpr const char* kNames[] = {"_exit", "_Exit", "quick_exit"};
  const bool is_one =
      std::any_of(std::begin(kNames), std::end(kNames), [name](auto* end) { return !strcmp(name, end); });
  return is_one ? SymbolTable(*own_module()).address_of(name) : nullptr;
}

// A module's tables, as the dynamic linker left them: with addresses, not offsets.
struct Tables {
  explicit Tables(const ElfW(Dyn) * entry) {
    for (; entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag >= 0 && entry->d_tag < DT_NUM) values[entry->d_tag] = entry->d_un.d_val;
  }
  template <class Row>
  const Row* rows(int tag) const {
    return reinterpret_cast<const Row*>(values[tag]);
  }
  std::span<const ElfW(Rela)> relocations(int tag, int bytes_tag) const {
    return {rows<ElfW(Rela)>(tag), rows<ElfW(Rela)>(tag) ? values[bytes_tag] / sizeof(ElfW(Rela)) : 0};
  }
  bool is_readable() const {
    return values[DT_SYMTAB] && values[DT_STRTAB] && (!values[DT_JMPREL] || values[DT_PLTREL] == DT_RELA);
  }

  ElfW(Xword) values[DT_NUM] = {};
};

class Module {
 public:
  explicit Module(const dl_phdr_info& info) : info_(info) {}

  void lead_ends_here() const {
    const ElfW(Phdr)* const dynamic = header(PT_DYNAMIC);
    if (!dynamic || is_left_alone(dynamic->p_vaddr + info_.dlpi_addr)) return;
    const Tables tables(reinterpret_cast<const ElfW(Dyn)*>(info_.dlpi_addr + dynamic->p_vaddr));
    if (!tables.is_readable()) return;
    lead_ends_here(tables, tables.relocations(DT_JMPREL, DT_PLTRELSZ));
    lead_ends_here(tables, tables.relocations(DT_RELA, DT_RELASZ));
  }

 private:
  const ElfW(Phdr) * header(std::uint32_t type) const {
    for (const ElfW(Phdr) & one : std::span(info_.dlpi_phdr, info_.dlpi_phnum))
      if (one.p_type == type) return &one;
    return nullptr;
  }

  // Ours, the C library and the dynamic linker; the kernel's has nothing to find.
  static bool is_left_alone(ElfW(Addr) dynamic) {
    const link_map* const module = module_of(reinterpret_cast<const void*>(dynamic));
    return !module || module == own_module() || is_c_library(*module) ||
           reinterpret_cast<ElfW(Addr)>(module->l_ld) != dynamic;
  }

  void lead_ends_here(const Tables& tables, std::span<const ElfW(Rela)> relocations) const {
    for (const ElfW(Rela) & one : relocations) {
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(one.r_info));
      if (type != kAddressTypes[0] && type != kAddressTypes[1]) continue;
      const ElfW(Sym)& symbol = tables.rows<ElfW(Sym)>(DT_SYMTAB)[ELF64_R_SYM(one.r_info)];
      void* const ours =
          symbol.st_shndx == SHN_UNDEF ? our_export(tables.rows<char>(DT_STRTAB) + symbol.st_name) : nullptr;
      if (ours) write(info_.dlpi_addr + one.r_offset, ours);
    }
  }

  // The dynamic linker closes whole pages for writing. The last one stays open if data follows in it.
  bool is_closed(ElfW(Addr) page) const {
    const ElfW(Phdr)* const closed = header(PT_GNU_RELRO);
    if (!closed) return false;
    const ElfW(Addr) first = info_.dlpi_addr + closed->p_vaddr;
    return page >= page_begin(first) && page < page_begin(first + closed->p_memsz);
  }

  // A page that is closed for writing is opened for this one word.
  void write(ElfW(Addr) at, void* value) const {
    const ElfW(Addr) page = page_begin(at);
    const bool was_closed = is_closed(page);
    if (was_closed && system_call(SYS_mprotect, page, page_bytes(), PROT_READ | PROT_WRITE) != 0) return;
    std::atomic_ref<void*>(*reinterpret_cast<void**>(at)).store(value);
    if (was_closed) system_call(SYS_mprotect, page, page_bytes(), PROT_READ);
  }

  const dl_phdr_info& info_;
};

int lead_ends_of(dl_phdr_info* module, std::size_t, void*) {
  Module(*module).lead_ends_here();
  return 0;
}

}  // namespace

void watch_sudden_ends_from_layer() { dl_iterate_phdr(lead_ends_of, nullptr); }

}  // namespace cistern
