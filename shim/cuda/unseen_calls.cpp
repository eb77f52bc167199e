// See unseen_calls.hpp.
#include "shim/cuda/unseen_calls.hpp"

#include <link.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "pool/base/name_list.hpp"
#include "pool/base/path.hpp"
#include "shim/cuda/gather.hpp"
#include "shim/cuda/unknown.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"

namespace cistern::cuda {
namespace {

constexpr char kHarmlessText[] =
#define CUDA_HARMLESS(name) #name "\0"
#include "shim/symbols/cuda_known.def"
    ;
constexpr char kExportedText[] =
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) #name "\0"
#include "shim/symbols/cuda.def"
    ;
constexpr NameList kHarmless(kHarmlessText), kExported(kExportedText);

// The dynamic section of a loaded object.
class Linked {
 public:
  explicit Linked(const dl_phdr_info& object) : base_(object.dlpi_addr) {
    for (const ElfW(Phdr) & part : std::span(object.dlpi_phdr, object.dlpi_phnum))
      if (part.p_type == PT_DYNAMIC) dynamic_ = reinterpret_cast<const ElfW(Dyn)*>(base_ + part.p_vaddr);
    symbols_ = reinterpret_cast<const ElfW(Sym)*>(address(DT_SYMTAB));
    names_ = reinterpret_cast<const char*>(address(DT_STRTAB));
  }

  // Calls visit(name) for each function or object that its relocations name and that it does not define.
  template <class Visit>
  void for_each_reference(Visit visit) const {
    if (!symbols_ || !names_) return;
    for (const auto& [table, bytes] : {std::pair(DT_JMPREL, DT_PLTRELSZ), std::pair(DT_RELA, DT_RELASZ)}) {
      const auto* const first = reinterpret_cast<const ElfW(Rela)*>(address(table));
      for (const ElfW(Rela) & place : std::span(first, first ? value(bytes) / sizeof(ElfW(Rela)) : 0)) {
        const ElfW(Sym)& symbol = symbols_[ELF64_R_SYM(place.r_info)];
        if (symbol.st_name && symbol.st_shndx == SHN_UNDEF) visit(names_ + symbol.st_name);
      }
    }
  }

 private:
  ElfW(Xword) value(ElfW(Sxword) tag) const {
    for (const ElfW(Dyn)* entry = dynamic_; entry && entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag == tag) return entry->d_un.d_val;
    return 0;
  }
  // The loader has made addresses of most of these; of an object that it maps read-only they are offsets still.
  ElfW(Addr) address(ElfW(Sxword) tag) const {
    const ElfW(Addr) found = value(tag);
    return found && found < base_ ? base_ + found : found;
  }

  const ElfW(Addr) base_;
  const ElfW(Dyn) * dynamic_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
};

bool matters(const char* name) { return looks_like_the_drivers(name) && !kExported.has(name) && !is_harmless(name); }

// The names are copied: what has them may be unloaded as soon as the loader's lock is free.
using Names = Vector<String>;
int add_references(dl_phdr_info* object, std::size_t, void* names) {
  if (basename_of(object->dlpi_name).starts_with("libcuda.so")) return 0;
  Linked(*object).for_each_reference([&](const char* name) {
    if (matters(name)) static_cast<Names*>(names)->push_back(name);
  });
  return 0;
}

}  // namespace

bool is_harmless(std::string_view name) { return kHarmless.has(name); }

std::uint64_t modules_loaded() {
  std::uint64_t changes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* first, std::size_t, void* sum) {
        *static_cast<std::uint64_t*>(sum) = first->dlpi_adds + first->dlpi_subs;
        return 1;
      },
      &changes);
  return changes;
}

bool another_stands_in_front() {
  for (const char* name : {"cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuStreamSynchronize"})
    if (first_module_with(name, main_module()) != own_module()) return true;
  return false;
}

// Without the lock that the loader holds while constructors run: one of them may wait for this thread.
String unseen_function() {
  Names names;
  dl_iterate_phdr(add_references, &names);
  const auto unseen = std::find_if(names.begin(), names.end(),
                                   [](const String& name) { return first_module_with(name.c_str(), main_module()); });
  return unseen == names.end() ? String() : std::move(*unseen);
}

void note_looked_up(const char* name, const void* caller) {
  if (!matters(name) || !options().gather || lies_in_library(caller, "libcuda.so")) return;
  if (first_module_with(name, main_module())) stop_gathering(GatherOff::unseen_function, name);
}

}  // namespace cistern::cuda
