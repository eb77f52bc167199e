/* dlsym: asks cistern_dlsym_replacement(handle, name, caller) first, else jumps to the real one with the caller's
   return address in place: RTLD_NEXT is relative to the caller, and an ordinary call would make every library find
   itself. */
        .text
        .globl  dlsym
        .type   dlsym, %function
        .hidden cistern_dlsym_replacement
        .hidden cistern_real_dlsym
        .p2align 4
dlsym:
        .cfi_startproc
#if defined(__x86_64__)
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), %rdx
        call    cistern_dlsym_replacement
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        jne     1f
        movq    %rdx, %rdi
        jmp     *cistern_real_dlsym(%rip)
1:      ret
#elif defined(__aarch64__)
        hint    #34
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        mov     x29, sp
        str     x1, [sp, #16]
        mov     x2, x30
        bl      cistern_dlsym_replacement
        mov     x9, x0
        mov     x0, x1
        ldr     x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        cbnz    x9, 1f
        adrp    x16, cistern_real_dlsym
        ldr     x16, [x16, #:lo12:cistern_real_dlsym]
        br      x16
1:      mov     x0, x9
        ret
#else
#error "dlsym is written for x86-64 and aarch64"
#endif
        .cfi_endproc
        .size   dlsym, .-dlsym
        .section .note.GNU-stack, "", %progbits
