/* syscall: calls that may set a filter of system calls go to cistern_syscall, all others to the real function by a
   jump: the caller's frame is what a child of vfork or clone returns through. */
#include <sys/syscall.h>

        .text
        .globl  syscall
        .type   syscall, %function
        .hidden cistern_syscall
        .hidden cistern_real_syscall
        .p2align 4
syscall:
        .cfi_startproc
#if defined(__x86_64__)
        endbr64
        cmpq    $SYS_prctl, %rdi
        je      cistern_syscall
        cmpq    $SYS_seccomp, %rdi
        je      cistern_syscall
        movq    cistern_real_syscall(%rip), %rax
        testq   %rax, %rax
        je      cistern_syscall
        jmp     *%rax
#elif defined(__aarch64__)
        hint    #34
        cmp     x0, #SYS_prctl
        b.eq    1f
        cmp     x0, #SYS_seccomp
        b.eq    1f
        adrp    x16, cistern_real_syscall
        ldr     x16, [x16, #:lo12:cistern_real_syscall]
        cbz     x16, 1f
        br      x16
1:      b       cistern_syscall
#else
#error "syscall is written for x86-64 and aarch64"
#endif
        .cfi_endproc
        .size   syscall, .-syscall
        .section .note.GNU-stack, "", %progbits
