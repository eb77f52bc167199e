// See live_stack.hpp.
#include "shim/judged_copy/live_stack.hpp"

#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "pool/base/system_call.hpp"

namespace cistern {
namespace {

#if defined(__x86_64__)
// To what handlers return: the C library's own, which it gives the kernel with every handler.
std::uintptr_t restorer() {
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    std::uint64_t mask;
  } entry{};
  for (std::uintptr_t signal = 1; signal <= 64; ++signal)
    if (system_call(SYS_rt_sigaction, signal, 0, reinterpret_cast<std::uintptr_t>(&entry), sizeof entry.mask) == 0 &&
        entry.restorer)
      return reinterpret_cast<std::uintptr_t>(entry.restorer);
  return 0;
}
#endif

}  // namespace

std::uintptr_t interrupted_stack([[maybe_unused]] std::uintptr_t stack, [[maybe_unused]] std::uintptr_t stack_end) {
#if defined(__x86_64__)
  constexpr std::uintptr_t kLookedAt = std::uintptr_t{64} * 1024;
  const std::uintptr_t returns_to = restorer();
  stack_end = std::min(stack_end, stack + kLookedAt);
  for (std::uintptr_t at = stack & ~std::uintptr_t{7}; returns_to && at + 8 + sizeof(ucontext_t) <= stack_end;
       at += 8) {
    if (*reinterpret_cast<const std::uintptr_t*>(at) != returns_to) continue;
    const auto* const context = reinterpret_cast<const ucontext_t*>(at + 8);
    return static_cast<std::uintptr_t>(context->uc_mcontext.gregs[REG_RSP]);
  }
#endif
  return 0;
}

bool is_behind_call(std::uintptr_t address) {
#if defined(__x86_64__)
  const auto* const behind = reinterpret_cast<const unsigned char*>(address);
  if (behind[-5] == 0xE8) return true;      // call rel32
  for (const int length : {2, 3, 4, 6, 7})  // call *r/m: FF /2
    if (behind[-length] == 0xFF && (behind[1 - length] >> 3 & 7) == 2) return true;
  return false;
#elif defined(__aarch64__)
  if (address % 4) return false;
  std::uint32_t before;
  memcpy(&before, reinterpret_cast<const void*>(address - sizeof before), sizeof before);
  return before >> 26 == 0x25 || (before & 0xFFFFFC1F) == 0xD63F0000;  // bl, blr
#endif
}

}  // namespace cistern
