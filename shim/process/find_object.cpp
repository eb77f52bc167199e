// See find_object.hpp. Two tables, sorted by address. One has the objects that were there at the start, and never
// changes again. The other has all later objects; it is made again whenever the loader's two counters say that the list
// has changed.
#include "shim/process/find_object.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "pool/base/page_size.hpp"
#include "pool/base/process_start.hpp"
#include "pool/base/symbol_table.hpp"
#include "shim/process/process.hpp"

#pragma weak _DYNAMIC  // a program that is linked statically has none
extern "C" [[gnu::weak]] decltype(_dl_find_object) __real__dl_find_object;  // see newer_c_library.cpp

namespace cistern {

[[gnu::hot]] bool c_library_finds_objects() { return __real__dl_find_object != nullptr; }

namespace {

struct Object {
  std::uintptr_t start, end;
  const link_map* map;
  const void* unwind_tables;  // .eh_frame_hdr; null: it has none
  bool holds(std::uintptr_t address) const { return address - start < end - start; }
};

std::uintptr_t value(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

[[gnu::no_sanitize("thread")]] Object describe(const link_map& map, const ElfW(Phdr) * headers, unsigned count) {
  Object object{UINTPTR_MAX, 0, &map, nullptr};
  for (const ElfW(Phdr)* header = headers; header != headers + count; ++header) {
    const std::uintptr_t start = map.l_addr + header->p_vaddr;
    if (header->p_type == PT_GNU_EH_FRAME) object.unwind_tables = reinterpret_cast<const void*>(start);
    if (header->p_type != PT_LOAD) continue;
    object.start = std::min(object.start, page_begin(start));
    object.end = std::max(object.end, start + header->p_memsz);
  }
  object.start = std::min(object.start, object.end);
  return object;
}

template <unsigned kMax>
class Table {
 public:
  void clear() { count_ = 0; }
  bool add(const Object& object) {
    if (count_ == kMax) return false;
    Object* const end = objects_ + count_++;
    Object* const slot = std::upper_bound(objects_, end, object.start, starts_behind);
    std::move_backward(slot, end, end + 1);
    *slot = object;
    return true;
  }
  const Object* find(std::uintptr_t address) const {
    const Object* const behind = std::upper_bound(objects_, objects_ + count_, address, starts_behind);
    return behind != objects_ && behind[-1].holds(address) ? behind - 1 : nullptr;
  }

 private:
  static bool starts_behind(std::uintptr_t address, const Object& object) { return address < object.start; }
  unsigned count_ = 0;
  Object objects_[kMax] = {};
};

constinit Table<256> first_objects;
enum class First : int { unknown, being_made, known };
constinit std::atomic<First> first_state{First::unknown};

// Read and written under the loader's lock. A signal handler that interrupted its own thread here finds it taken, and
// does without.
struct Others {
  std::atomic<bool> taken{false};
  bool complete = false;
  unsigned long long loaded = 0, unloaded = 0;
  Table<1024> objects;
};
constinit Others others;

bool is_c_library(const link_map& map) {
  const SymbolTable symbols(map);
  return symbols.defines("__libc_start_main") && symbols.defines("sbrk");
}

// One walk over the loader's list, under its lock. The headers come with the walk, the link maps lie in the same order.
struct Walk {
  enum class Use { first_objects, others, nothing };

  std::uintptr_t address;
  Use use;
  bool until_c_library;
  Object found{};
  const link_map* map = _r_debug.r_map;
  bool begun = false, taken = false;

  // False: all is said.
  bool begin(const dl_phdr_info& info) {
    begun = true;
    if (use != Use::others) return true;
    if (others.taken.exchange(true, std::memory_order_acquire)) {
      use = Use::nothing;
      return true;
    }
    taken = true;
    if (others.complete && others.loaded == info.dlpi_adds && others.unloaded == info.dlpi_subs) {
      if (const Object* const known = others.objects.find(address)) found = *known;
      return false;
    }
    others.complete = false;
    others.loaded = info.dlpi_adds;
    others.unloaded = info.dlpi_subs;
    others.objects.clear();
    return true;
  }

  // The loader writes these fields under its lock, which ThreadSanitizer does not see.
  [[gnu::no_sanitize("thread")]] bool is_at(const dl_phdr_info& info) const {
    return map->l_addr == info.dlpi_addr && map->l_name == info.dlpi_name;
  }

  // 1: enough.
  [[gnu::no_sanitize("thread")]] int visit(const dl_phdr_info& info) {
    if (!begun && !begin(info)) return 1;
    while (map && !is_at(info)) map = map->l_next;
    if (!map) return 1;
    const Object object = describe(*map, info.dlpi_phdr, info.dlpi_phnum);
    map = map->l_next;
    if (object.holds(address)) found = object;
    if (use == Use::nothing) return found.map != nullptr;
    if (use == Use::first_objects) return !first_objects.add(object) || (until_c_library && is_c_library(*object.map));
    const bool fits = first_objects.find(object.start) || others.objects.add(object);
    others.complete = fits && !map;
    if (!fits) use = Use::nothing;
    return !fits && found.map;
  }
};

// The C library's own function, read from its table: a sanitizer's stands before it, and cannot be called while that
// one starts, which allocates.
using Iterate = decltype(&dl_iterate_phdr);
Iterate iterate() {
  static constinit std::atomic<Iterate> known{nullptr};
  Iterate function = known.load(std::memory_order_relaxed);
  for (const link_map* map = _r_debug.r_map; map && !function; map = map->l_next)
    if (is_c_library(*map)) function = reinterpret_cast<Iterate>(SymbolTable(*map).address_of("dl_iterate_phdr"));
  known.store(function, std::memory_order_relaxed);
  return function ? function : &dl_iterate_phdr;
}

void walk(Walk& walk) {
  iterate()([](dl_phdr_info* info, std::size_t, void* data) { return static_cast<Walk*>(data)->visit(*info); }, &walk);
  if (walk.taken) others.taken.store(false, std::memory_order_release);
}

// The object to preload is asked from within the first malloc of the process, before anything can be loaded late.
// Other objects with this code may be asked at any time; then only the objects up to the C library are certain.
bool asked_from_the_start() {
  for (const link_map* map = _r_debug.r_map; map && !is_c_library(*map); map = map->l_next) {
    const SymbolTable symbols(*map);
    if (map->l_ld == _DYNAMIC)  // that of the object which this code is a part of
      return symbols.defines("malloc") && symbols.defines("cistern_interface");
  }
  return false;
}

void find_first_objects() {
  First expected = First::unknown;
  if (!first_state.compare_exchange_strong(expected, First::being_made)) return;
  Walk first{0, Walk::Use::first_objects, !asked_from_the_start()};
  walk(first);
  first_state.store(First::known, std::memory_order_release);
}

// --- As it lies
bool is_mapped(std::uintptr_t address) {
  const int kept = errno;
  unsigned char resident;
  const bool mapped = mincore(reinterpret_cast<void*>(page_begin(address)), 1, &resident) == 0 || errno != ENOMEM;
  errno = kept;
  return mapped;
}

// An object is mapped from its own address on, its headers first; but for a program that is bound to its place.
bool describe_unlocked(const link_map& map, Object& object) {
  if (&map == _r_debug.r_map) {
    object = describe(map, reinterpret_cast<const ElfW(Phdr)*>(start_value(AT_PHDR)),
                      static_cast<unsigned>(start_value(AT_PHNUM)));
    return true;
  }
  if (!is_mapped(map.l_addr)) return false;
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(map.l_addr);
  if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
  object = describe(map, reinterpret_cast<const ElfW(Phdr)*>(map.l_addr + header->e_phoff), header->e_phnum);
  return object.holds(value(map.l_ld));
}

// Objects do not overlap: it is the last one that begins before the address, or the program.
bool find_unlocked(std::uintptr_t address, Object& found) {
  const link_map* nearest = nullptr;
  for (const link_map* map = _r_debug.r_map->l_next; map; map = map->l_next)
    if (map->l_addr <= address && (!nearest || map->l_addr > nearest->l_addr)) nearest = map;
  return (nearest && describe_unlocked(*nearest, found) && found.holds(address)) ||
         (describe_unlocked(*_r_debug.r_map, found) && found.holds(address));
}

bool find(std::uintptr_t address, Object& found) {
  if (first_state.load(std::memory_order_acquire) != First::known) find_first_objects();
  if (first_state.load(std::memory_order_acquire) == First::known) [[likely]]
    if (const Object* const known = first_objects.find(address)) {
      found = *known;
      return true;
    }
  if (forked_beside_threads()) return find_unlocked(address, found);
  const bool has_first = first_state.load(std::memory_order_relaxed) == First::known;
  Walk look_up{address, has_first ? Walk::Use::others : Walk::Use::nothing, false};
  walk(look_up);
  found = look_up.found;
  return found.map != nullptr;
}

}  // namespace

[[gnu::cold]] int find_object(const void* address, dl_find_object& found) {
  Object object{};
  if (!find(value(address), object)) return -1;
  found = {};
  found.dlfo_map_start = reinterpret_cast<void*>(object.start);
  found.dlfo_map_end = reinterpret_cast<void*>(object.end);
  found.dlfo_link_map = const_cast<link_map*>(object.map);
  found.dlfo_eh_frame = const_cast<void*>(object.unwind_tables);
  return 0;
}

}  // namespace cistern
