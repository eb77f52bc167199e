// System calls without the C library's function: that one is interposed, sets errno, and lies in a part of the C
// library that small programs do not touch otherwise.
#pragma once
#include <sys/syscall.h>
#include <sys/types.h>

#include <cstdint>

namespace cistern {

// The kernel's answer: from -4095 to -1 it is an error number, negated.
inline long system_call(long number, std::uintptr_t first = 0, std::uintptr_t second = 0, std::uintptr_t third = 0,
                        std::uintptr_t fourth = 0, std::uintptr_t fifth = 0, std::uintptr_t sixth = 0) {
#if defined(__x86_64__)
  long answer;
  register std::uintptr_t r10 asm("r10") = fourth;
  register std::uintptr_t r8 asm("r8") = fifth;
  register std::uintptr_t r9 asm("r9") = sixth;
  asm volatile("syscall"
               : "=a"(answer)
               : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return answer;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register std::uintptr_t x0 asm("x0") = first;
  register std::uintptr_t x1 asm("x1") = second;
  register std::uintptr_t x2 asm("x2") = third;
  register std::uintptr_t x3 asm("x3") = fourth;
  register std::uintptr_t x4 asm("x4") = fifth;
  register std::uintptr_t x5 asm("x5") = sixth;
  asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return static_cast<long>(x0);
#else
#error "system calls are written for x86-64 and aarch64"
#endif
}

// By the call itself: a handler may have interrupted a section that a lock of ours guards, where no function of another
// library is called.
inline pid_t this_process() { return static_cast<pid_t>(system_call(SYS_getpid)); }

}  // namespace cistern
