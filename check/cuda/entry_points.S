// The symbols of libcuda.so, and dlsym(): each jumps to code of interpose.cc.
#if defined(__x86_64__)
#define JUMP(target) endbr64; jmp *target(%rip);
#elif defined(__aarch64__)
#define JUMP(target) adrp x16, target; ldr x16, [x16, :lo12:target]; br x16;
#endif

        .text
#define ENTRY(name) .globl name; .type name, %function; name:
#define CALL(name, ...) \
  ENTRY(name) ENTRY(cgtree_check_jump_##name) .hidden cgtree_check_jump_##name; \
  JUMP(cgtree_check_at_##name)
#define BOTH(name, suffix, ...) CALL(name) CALL(name##suffix)
#include "check/cuda/calls.inc"

// dlsym() jumps to the function that cgtree_check_dlsym() returns. The real function looks at its
// caller if the handle is RTLD_NEXT.
ENTRY(dlsym)
#if defined(__x86_64__)
        endbr64
        push    %rdi
        push    %rsi
        sub     $8, %rsp
        call    cgtree_check_dlsym
        add     $8, %rsp
        pop     %rsi
        pop     %rdi
        jmp     *%rax
#elif defined(__aarch64__)
        stp     x29, x30, [sp, -32]!
        stp     x0, x1, [sp, 16]
        bl      cgtree_check_dlsym
        mov     x16, x0
        ldp     x0, x1, [sp, 16]
        ldp     x29, x30, [sp], 32
        br      x16
#endif
        .section .note.GNU-stack, "", %progbits
