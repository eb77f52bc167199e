// The work of a stub (held_locks.S) before it passes a call on: it notes each call that a thread makes while it holds a
// lock of Cistern's, in the file HELD_LOCKS. How many locks a thread holds is a thread-local word of libcistern.so,
// found by a slot of its table that has the word's offset from the thread pointer (SLOT, from the object file). Those
// of a fork do not count: meanwhile another word (FORKS bytes further) is not zero.
//
// Any function may be stubbed, so this calls none.
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/syscall.h>

enum { kNames = 1024, kHidden = 0x8000 };

extern struct r_debug _r_debug;
extern char** environ;

static struct {
  const char* name;
  void* function;
} known[kNames];
static unsigned long calls;

static long system_call(long number, long a, long b, long c, long d) {
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
}

static int same(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

static int is_libcistern(const char* path) {
  const char* name = path;
  for (; *path; ++path)
    if (*path == '/') name = path + 1;
  return same(name, "libcistern.so");
}

static const char* variable(const char* name) {
  for (char** one = environ; one && *one; ++one) {
    const char *at = *one, *wanted = name;
    while (*wanted && *at == *wanted) ++at, ++wanted;
    if (!*wanted && *at == '=') return at + 1;
  }
  return 0;
}

static const struct link_map* object_with(const void* address, int ours) {
  for (const struct link_map* map = _r_debug.r_map; map; map = map->l_next)
    if (ours ? is_libcistern(map->l_name) : map->l_ld == address) return map;
  return 0;
}

// The default version of the name in this object's own table; null: none is there.
static void* definition(const struct link_map* map, const char* name) {
  const ElfW(Sym)* symbols = 0;
  const char* strings = 0;
  const unsigned* hashes = 0;
  const unsigned short* versions = 0;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = (const void*)entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRTAB) strings = (const void*)entry->d_un.d_ptr;
    if (entry->d_tag == DT_GNU_HASH) hashes = (const void*)entry->d_un.d_ptr;
    if (entry->d_tag == DT_VERSYM) versions = (const void*)entry->d_un.d_ptr;
  }
  if (!symbols || !strings || !hashes || (ElfW(Addr))symbols < map->l_addr) return 0;  // the kernel's has offsets
  const unsigned buckets = hashes[0], first = hashes[1], words = hashes[2];
  const unsigned* const bucket = (const unsigned*)((const ElfW(Addr)*)(hashes + 4) + words);
  for (unsigned i = 0; i < buckets; ++i) {
    for (unsigned at = bucket[i]; at >= first; ++at) {
      const ElfW(Sym)* const symbol = &symbols[at];
      if (symbol->st_shndx != SHN_UNDEF && !(versions && versions[at] & kHidden) &&
          same(strings + symbol->st_name, name)) {
        void* const address = (void*)(map->l_addr + symbol->st_value);
        return ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC ? ((void* (*)(void))address)() : address;
      }
      if (bucket[buckets + at - first] & 1) break;
    }
  }
  return 0;
}

static void* real_function(const char* name) {
  unsigned at = (unsigned)((unsigned long)name % kNames);
  for (; known[at].name && known[at].name != name; at = (at + 1) % kNames) {
  }
  if (known[at].name == name && known[at].function) return known[at].function;
  extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));
  void* found = 0;
  for (const struct link_map* map = object_with(_DYNAMIC, 0)->l_next; map && !found; map = map->l_next)
    found = definition(map, name);
  known[at].function = found;
  known[at].name = name;
  return found;
}

static void note(const char* name, const void* caller) {
  const char* const path = variable("HELD_LOCKS");
  if (!path) return;
  char line[160];
  unsigned length = 0;
  while (name[length] && length < 100) line[length] = name[length], ++length;
  const struct link_map* const map = object_with(0, 1);
  const unsigned long at = (unsigned long)caller - map->l_addr;
  line[length++] = ' ';
  for (int shift = 28; shift >= 0; shift -= 4) line[length++] = "0123456789abcdef"[at >> shift & 15];
  line[length++] = '\n';
  const long file = system_call(SYS_openat, AT_FDCWD, (long)path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return;
  system_call(SYS_write, file, (long)line, length, 0);
  system_call(SYS_close, file, 0, 0, 0);
}

__attribute__((visibility("hidden"))) void* before_call(const char* name, const void* caller) {
  static const struct link_map* cistern;
  if (!cistern) cistern = object_with(0, 1);
  // Before it is relocated the slot is zero, or small: what the linker left there.
  const long slot = cistern ? *(const long*)(cistern->l_addr + SLOT) : 0;
  if (slot < 0) {
    const int* const held = (const int*)((const char*)__builtin_thread_pointer() + slot);
    const int forks = *(const int*)((const char*)held + FORKS);
    if (*held > 0 && !forks) note(name, caller);
    if (!__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED)) note("(calls)", caller);
    if (variable("HELD_LOCKS_PRETEND") && same(name, "getpid")) note(name, caller);
  }
  return real_function(name);
}
