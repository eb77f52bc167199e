// See clock.hpp.
#include "pool/base/clock.hpp"

#include <elf.h>
#include <link.h>
#include <time.h>

#include <atomic>

#include "pool/base/process_start.hpp"
#include "pool/base/symbol_table.hpp"
#include "pool/base/system_call.hpp"

namespace cistern {
namespace {

using Read = int (*)(clockid_t, timespec*);

int read_by_system_call(clockid_t clock, timespec* now) {
  const long answer =
      system_call(SYS_clock_gettime, static_cast<std::uintptr_t>(clock), reinterpret_cast<std::uintptr_t>(now));
  return answer < 0 ? -1 : 0;
}

constinit std::atomic<Read> read_clock{read_by_system_call};

#if defined(__x86_64__)
constexpr char kName[] = "__vdso_clock_gettime";
#else
constexpr char kName[] = "__kernel_clock_gettime";
#endif

// The object as the loader would describe it: how far it lies from where it was linked to, and its dynamic section.
Read function_of_kernel(std::uintptr_t header_at) {
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(header_at);
  const auto* const parts = reinterpret_cast<const ElfW(Phdr)*>(header_at + header->e_phoff);
  link_map object{};
  bool placed = false;
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    if (parts[i].p_type == PT_LOAD && !placed) {
      object.l_addr = header_at + parts[i].p_offset - parts[i].p_vaddr;
      placed = true;
    }
    if (parts[i].p_type == PT_DYNAMIC) object.l_ld = reinterpret_cast<ElfW(Dyn)*>(header_at + parts[i].p_offset);
  }
  return placed && object.l_ld ? reinterpret_cast<Read>(SymbolTable(object).address_of(kName)) : nullptr;
}

}  // namespace

[[gnu::hot]] void find_clock() {
  if (read_clock.load(std::memory_order_relaxed) != read_by_system_call) return;
  const unsigned long object = start_value(AT_SYSINFO_EHDR);
  if (const Read found = object ? function_of_kernel(object) : nullptr)
    read_clock.store(found, std::memory_order_relaxed);
}

std::uint64_t clock_ns(int clock) {
  timespec now{};
  read_clock.load(std::memory_order_relaxed)(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}
std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
std::uint64_t coarse_monotonic_ns() { return clock_ns(CLOCK_MONOTONIC_COARSE); }

}  // namespace cistern
