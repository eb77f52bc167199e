// See entry_plugins.hpp. From the first such moment on, the C library's own names of the malloc family lead to us: its
// symbols get our functions' addresses, in a private copy of their pages. So what binds to them later finds the same
// malloc as the program, in whatever order it looks, before its constructors run, and dlopen itself is untouched: the
// caller's search path, the order of all other symbols, and dlmopen, whose namespaces have C libraries of their own.
#include "shim/entry_plugins.hpp"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <span>

#include "pool/base/page_size.hpp"
#include "pool/base/symbol_table.hpp"
#include "shim/cuda/gather.hpp"
#include "shim/host/native.hpp"
#include "shim/host/serving.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/system_filter.hpp"

namespace {

using namespace cistern;

template <class Visit>
void for_each_name(Visit visit) {
  for (const char* name = host::kNames; *name; name += strlen(name) + 1) visit(name);
}

bool is_of_the_family(const char* name) {
  if (!strchr("mfcrapv_", name[0])) return false;
  bool found = false;
  for_each_name([&](const char* row) { found = found || strcmp(row, name) == 0; });
  return found;
}

// Whole pages, of which a copy is made, changed and put in their place at once. So other threads that look symbols up,
// or come here too, see either, and both are right.
class PagesOf {
 public:
  PagesOf(const void* begin, std::size_t bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    begin_ = reinterpret_cast<char*>(page_begin(address));
    bytes_ = whole_pages(address + bytes) - reinterpret_cast<std::uintptr_t>(begin_);
    void* const copy = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy != MAP_FAILED) copy_ = static_cast<char*>(memcpy(copy, begin_, bytes_));
  }
  PagesOf(const PagesOf&) = delete;
  PagesOf& operator=(const PagesOf&) = delete;
  ~PagesOf() {
    if (copy_) munmap(copy_, bytes_);
  }

  explicit operator bool() const { return copy_; }
  template <class T>
  T& in_copy(const T& original) {
    return *reinterpret_cast<T*>(copy_ + (reinterpret_cast<const char*>(&original) - begin_));
  }
  bool replace(int rights) {
    if (mprotect(copy_, bytes_, rights) != 0 ||
        mremap(copy_, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, begin_) == MAP_FAILED)
      return false;
    copy_ = nullptr;
    return true;
  }

 private:
  char *begin_ = nullptr, *copy_ = nullptr;
  std::size_t bytes_ = 0;
};

// Large pages may hold code behind the symbols, where one segment has both.
int rights_at(const link_map& module, const void* address) {
  const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(module.l_addr);
  const auto* const parts = reinterpret_cast<const ElfW(Phdr)*>(module.l_addr + header.e_phoff);
  const ElfW(Addr) offset = reinterpret_cast<ElfW(Addr)>(address) - module.l_addr;
  for (const ElfW(Phdr) & part : std::span(parts, header.e_phnum))
    if (part.p_type == PT_LOAD && offset - part.p_vaddr < part.p_memsz)
      return part.p_flags & PF_X ? PROT_READ | PROT_EXEC : PROT_READ;
  return PROT_READ;
}

bool write_names(const link_map& c_library) {
  const SymbolTable theirs(c_library), ours(*own_module());
  PagesOf pages(theirs.symbols(), theirs.count() * sizeof(ElfW(Sym)));
  if (!theirs.count() || !pages) return false;
  for_each_name([&](const char* name) {
    const auto function = reinterpret_cast<ElfW(Addr)>(ours.address_of(name));
    theirs.for_each_definition(
        name, [&](const ElfW(Sym) & symbol) { pages.in_copy(symbol).st_value = function - c_library.l_addr; });
  });
  return pages.replace(rights_at(c_library, theirs.symbols()));
}

enum class Redirected : int { not_yet, yes, impossible };
constinit std::atomic<Redirected> redirected{Redirected::not_yet};

// Ours are the program's; another allocator's, or the C library's, are as they would be without us.
bool redirect() {
  if (!host::pool_serves() || host::native_owner() != host::Owner::us) return true;
  if (redirected.load(std::memory_order_acquire) == Redirected::not_yet && !system_calls_are_filtered()) {
    const link_map* const c_library = module_of(reinterpret_cast<const void*>(host::native().malloc));
    const bool done = c_library && write_names(*c_library);
    Redirected expected = Redirected::not_yet;  // another thread may have had more luck meanwhile
    redirected.compare_exchange_strong(expected, done ? Redirected::yes : Redirected::impossible);
  }
  return redirected.load(std::memory_order_relaxed) == Redirected::yes;
}

}  // namespace

int cistern_dlopen_mode(int mode) {
  real_dlopen();  // what the assembly jumps to
  cuda::before_call(cuda::Sent::loading);
  if (!(mode & RTLD_DEEPBIND) || switched_off()) [[likely]]
    return mode;
  if (options().gather) cuda::stop_gathering(cuda::GatherOff::deep_binding);
  const String& way = options().deepbind;
  if (way == "keep") return mode;
  return way == "clear" || !redirect() ? mode & ~RTLD_DEEPBIND : mode;
}

void before_look_up(const char* name) {
  if (redirected.load(std::memory_order_relaxed) != Redirected::not_yet || !host::pool_serves()) return;
  if (is_of_the_family(name) && options().deepbind != "keep") redirect();
}
