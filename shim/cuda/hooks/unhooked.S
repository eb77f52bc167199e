/* A stub for each function of the driver without a hook that the program looked up (unhooked.hpp). It keeps all
   registers that may hold arguments, asks cistern_before_unhooked(stub, second argument) for the function, and jumps to
   it: arguments on the stack and the return address lie where the caller left them. */
#define STUBS 1024
        .text
        .hidden cistern_before_unhooked
        .hidden cistern_unhooked_stubs
        .globl  cistern_unhooked_stubs
        .type   cistern_unhooked_stubs, %function
        .p2align 4
cistern_unhooked_stubs:
        .cfi_startproc
        .set    stub, 0
#if defined(__x86_64__)
        .rept   STUBS
        .p2align 4
        .cfi_def_cfa_offset 8
        endbr64
        pushq   $stub
        .cfi_def_cfa_offset 16
        jmp     .Lcommon
        .set    stub, stub + 1
        .endr
        .p2align 4
.Lcommon:
        pushq   %rbp
        .cfi_def_cfa_offset 24
        .cfi_offset %rbp, -24
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        andq    $-16, %rsp
        subq    $192, %rsp
        movaps  %xmm0, (%rsp)
        movaps  %xmm1, 16(%rsp)
        movaps  %xmm2, 32(%rsp)
        movaps  %xmm3, 48(%rsp)
        movaps  %xmm4, 64(%rsp)
        movaps  %xmm5, 80(%rsp)
        movaps  %xmm6, 96(%rsp)
        movaps  %xmm7, 112(%rsp)
        movq    %rdi, 128(%rsp)
        movq    %rsi, 136(%rsp)
        movq    %rdx, 144(%rsp)
        movq    %rcx, 152(%rsp)
        movq    %r8, 160(%rsp)
        movq    %r9, 168(%rsp)
        movq    %rax, 176(%rsp)
        movl    8(%rbp), %edi
        call    cistern_before_unhooked
        movq    %rax, %r11
        movaps  (%rsp), %xmm0
        movaps  16(%rsp), %xmm1
        movaps  32(%rsp), %xmm2
        movaps  48(%rsp), %xmm3
        movaps  64(%rsp), %xmm4
        movaps  80(%rsp), %xmm5
        movaps  96(%rsp), %xmm6
        movaps  112(%rsp), %xmm7
        movq    128(%rsp), %rdi
        movq    136(%rsp), %rsi
        movq    144(%rsp), %rdx
        movq    152(%rsp), %rcx
        movq    160(%rsp), %r8
        movq    168(%rsp), %r9
        movq    176(%rsp), %rax
        movq    %rbp, %rsp
        .cfi_def_cfa_register %rsp
        popq    %rbp
        .cfi_def_cfa_offset 16
        .cfi_restore %rbp
        addq    $8, %rsp
        .cfi_def_cfa_offset 8
        jmp     *%r11
#elif defined(__aarch64__)
        .rept   STUBS
        .p2align 4
        hint    #34
        mov     w17, #stub
        b       .Lcommon
        .set    stub, stub + 1
        .endr
        .p2align 4
.Lcommon:
        stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset 29, -224
        .cfi_offset 30, -216
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w17
        bl      cistern_before_unhooked
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x2, x3, [sp, #32]
        ldp     x4, x5, [sp, #48]
        ldp     x6, x7, [sp, #64]
        ldr     x8, [sp, #80]
        ldp     q0, q1, [sp, #96]
        ldp     q2, q3, [sp, #128]
        ldp     q4, q5, [sp, #160]
        ldp     q6, q7, [sp, #192]
        ldp     x29, x30, [sp], #224
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        br      x16
#else
#error "the stubs are written for x86-64 and aarch64"
#endif
        .cfi_endproc
        .size   cistern_unhooked_stubs, .-cistern_unhooked_stubs
        .section .rodata
        .hidden cistern_unhooked_count
        .globl  cistern_unhooked_count
        .type   cistern_unhooked_count, %object
        .p2align 2
cistern_unhooked_count:
        .long   STUBS
        .size   cistern_unhooked_count, 4
        .section .note.GNU-stack, "", %progbits
