// A function called on another stack.
#pragma once

namespace cistern {

// `top`: above the stack's last byte. Comes back.
[[gnu::always_inline]] inline void call_on_stack(void* top, void (*function)(void*), void* argument) {
#if defined(__x86_64__)
  asm volatile("movq %%rsp, %%rbx\n\tmovq %1, %%rsp\n\tcall *%2\n\tmovq %%rbx, %%rsp"
               : "+D"(argument)
               : "r"(top), "r"(function)
               : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
                 "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory",
                 "cc");
#elif defined(__aarch64__)
  register void* x0 asm("x0") = argument;
  asm volatile("mov x19, sp\n\tmov sp, %1\n\tblr %2\n\tmov sp, x19"
               : "+r"(x0)
               : "r"(top), "r"(function)
               : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
                 "x17", "x18", "x19", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19",
                 "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "memory", "cc");
#else
#error "stacks are changed on x86-64 and aarch64"
#endif
}

}  // namespace cistern
