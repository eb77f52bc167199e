// A misuse says which pointer it is about before it happens. The compiler is not to see what follows.
#pragma once
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static inline void* about(void* pointer) {
  printf("%p\n", pointer);
  fflush(stdout);
  __asm__ volatile("" : "+r"(pointer));
  return pointer;
}
