// See process_start.hpp.
#include "pool/base/process_start.hpp"

#include <elf.h>
#include <link.h>

#include <atomic>

extern "C" void* __libc_stack_end;

namespace cistern {
namespace {

// Behind the environment. The program may have shortened that one, which leaves nulls and old pointers at its end: the
// vector begins with the first word that is a type.
const ElfW(auxv_t) * find_vector() {
  char** entry = start_environment();
  if (!entry) return nullptr;
  constexpr std::uintptr_t kTypeMax = 4095;
  while (reinterpret_cast<std::uintptr_t>(*entry) - 1 >= kTypeMax) ++entry;
  return reinterpret_cast<const ElfW(auxv_t)*>(entry);
}

constinit std::atomic<const ElfW(auxv_t)*> vector{nullptr};

const ElfW(auxv_t) * known_vector() {
  if (const auto* known = vector.load(std::memory_order_relaxed)) return known;
  const auto* const found = find_vector();
  if (found) vector.store(found, std::memory_order_relaxed);
  return found;
}

}  // namespace

char** start_arguments() {
  if (!__libc_stack_end) return nullptr;
  char** const arguments = static_cast<char**>(__libc_stack_end) + 1;
  const auto count = *static_cast<const long*>(__libc_stack_end);
  return count >= 0 && !arguments[count] ? arguments : nullptr;
}

char** start_environment() {
  char** end = start_arguments();
  if (!end) return nullptr;
  while (*end) ++end;
  return end + 1;
}

unsigned long start_value(unsigned long type) {
  const auto* entry = known_vector();
  if (!entry) return 0;
  for (; entry->a_type != AT_NULL; ++entry)
    if (entry->a_type == type) return entry->a_un.a_val;
  return 0;
}

bool started_with_more_rights() { return !known_vector() || start_value(AT_SECURE); }

}  // namespace cistern
