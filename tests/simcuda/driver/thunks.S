// A jump per entry point: cuGetProcAddress answers with these for most names, because the real driver's pointers need
// not be its exported symbols.
#if defined(__x86_64__)
#define JUMP_TO(name) jmp name@PLT
#else
#define JUMP_TO(name) b name
#endif
#define SIMCUDA_ENTRY_POINT(base, version, stream, name) \
  .hidden simcuda_thunk_##name; .globl simcuda_thunk_##name; .type simcuda_thunk_##name, %function; \
  .balign 16; simcuda_thunk_##name: JUMP_TO(name); .size simcuda_thunk_##name, . - simcuda_thunk_##name;
  .text
#include "tests/simcuda/driver/entry_points.def"
  .section .note.GNU-stack, "", %progbits
