/* dlopen: asks cistern_dlopen_mode(mode) for the mode, then jumps to the real one with the caller's return address in
   place: the caller's search path (RPATH, RUNPATH) and its namespace go by it. */
        .text
        .globl  dlopen
        .type   dlopen, %function
        .hidden cistern_dlopen_mode
        .hidden cistern_real_dlopen
        .p2align 4
dlopen:
        .cfi_startproc
#if defined(__x86_64__)
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        movl    %esi, %edi
        call    cistern_dlopen_mode
        movl    %eax, %esi
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *cistern_real_dlopen(%rip)
#elif defined(__aarch64__)
        hint    #34
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        mov     x29, sp
        str     x0, [sp, #16]
        mov     w0, w1
        bl      cistern_dlopen_mode
        mov     w1, w0
        ldr     x0, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        adrp    x16, cistern_real_dlopen
        ldr     x16, [x16, #:lo12:cistern_real_dlopen]
        br      x16
#else
#error "dlopen is written for x86-64 and aarch64"
#endif
        .cfi_endproc
        .size   dlopen, .-dlopen
        .section .note.GNU-stack, "", %progbits
