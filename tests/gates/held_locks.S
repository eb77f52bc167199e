// A stub of each function that libcistern.so takes from other libraries: STUB(name), one a line, in names.inc. It calls
// before_call (held_locks.c) and jumps to the real function, with all arguments as they came.
#if defined(__x86_64__)
.macro save register
  pushq %\register
.endm
.macro restore register
  popq %\register
.endm

#define STUB(name)               \
  .globl name;                   \
  .type name, @function;         \
name:                            \
  endbr64;                       \
  pushq $(9f - names);           \
  jmp stub;                      \
  .size name, . - name;          \
  .pushsection .rodata.names, "a"; \
9:.asciz #name;                  \
  .popsection;

  .section .rodata.names, "a"
names:
  .text
stub:  // on the stack: which name, and where it returns to
  .irp register, rbp, rax, rdi, rsi, rdx, rcx, r8, r9, r10
  save \register
  .endr
  movq %rsp, %rbp
  leaq names(%rip), %rdi
  addq 72(%rbp), %rdi
  movq 80(%rbp), %rsi
  subq $128, %rsp
  andq $-16, %rsp
  .irp number, 0, 1, 2, 3, 4, 5, 6, 7
  movaps %xmm\number, 16*\number(%rsp)
  .endr
  call before_call
  .irp number, 0, 1, 2, 3, 4, 5, 6, 7
  movaps 16*\number(%rsp), %xmm\number
  .endr
  movq %rax, %r11
  movq %rbp, %rsp
  .irp register, r10, r9, r8, rcx, rdx, rsi, rdi, rax, rbp
  restore \register
  .endr
  leaq 8(%rsp), %rsp
  jmp *%r11
#include "names.inc"
#endif
  .section .note.GNU-stack, "", %progbits
