// A stub of the function FUNCTION of another library: calls before_call (stub.c), which allocates and says where the
// real function is, and jumps there. Arguments reach it as they came, those in registers and those on the stack, and it
// returns to the caller itself: it may return twice, take any number of arguments, or ask who called it.
#if defined(__x86_64__)
  .text
  .globl FUNCTION
  .type FUNCTION, @function
FUNCTION:
  .cfi_startproc
  endbr64
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  pushq %rax  // how many vector registers a variadic call uses
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  pushq %r10
  subq $128, %rsp
  andq $-16, %rsp
  movaps %xmm0, (%rsp)
  movaps %xmm1, 16(%rsp)
  movaps %xmm2, 32(%rsp)
  movaps %xmm3, 48(%rsp)
  movaps %xmm4, 64(%rsp)
  movaps %xmm5, 80(%rsp)
  movaps %xmm6, 96(%rsp)
  movaps %xmm7, 112(%rsp)
  call before_call
  movq %rax, %r11
  movaps (%rsp), %xmm0
  movaps 16(%rsp), %xmm1
  movaps 32(%rsp), %xmm2
  movaps 48(%rsp), %xmm3
  movaps 64(%rsp), %xmm4
  movaps 80(%rsp), %xmm5
  movaps 96(%rsp), %xmm6
  movaps 112(%rsp), %xmm7
  leaq -64(%rbp), %rsp
  popq %r10
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  popq %rax
  popq %rbp
  .cfi_def_cfa %rsp, 8
  .cfi_restore %rbp
  jmp *%r11
  .cfi_endproc
  .size FUNCTION, . - FUNCTION
#elif defined(__aarch64__)
  .text
  .globl FUNCTION
  .type FUNCTION, %function
FUNCTION:
  .cfi_startproc
  hint 34  // bti c
  stp x29, x30, [sp, -224]!
  .cfi_def_cfa_offset 224
  .cfi_offset x29, -224
  .cfi_offset x30, -216
  mov x29, sp
  stp x0, x1, [sp, 16]
  stp x2, x3, [sp, 32]
  stp x4, x5, [sp, 48]
  stp x6, x7, [sp, 64]
  str x8, [sp, 80]
  stp q0, q1, [sp, 96]
  stp q2, q3, [sp, 128]
  stp q4, q5, [sp, 160]
  stp q6, q7, [sp, 192]
  bl before_call
  mov x16, x0
  ldp x0, x1, [sp, 16]
  ldp x2, x3, [sp, 32]
  ldp x4, x5, [sp, 48]
  ldp x6, x7, [sp, 64]
  ldr x8, [sp, 80]
  ldp q0, q1, [sp, 96]
  ldp q2, q3, [sp, 128]
  ldp q4, q5, [sp, 160]
  ldp q6, q7, [sp, 192]
  ldp x29, x30, [sp], 224
  .cfi_def_cfa_offset 0
  .cfi_restore x29
  .cfi_restore x30
  br x16
  .cfi_endproc
  .size FUNCTION, . - FUNCTION
#endif

  .section .rodata
  .globl stub_name
  .hidden stub_name
  .type stub_name, %object
stub_name:
  .asciz NAME
  .section .note.GNU-stack, "", %progbits
