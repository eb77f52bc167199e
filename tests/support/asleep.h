// Waits until another thread, or a child's only one, sleeps in a call of the kernel or has ended: what a test of
// waiting threads needs to know before it goes on, instead of giving them some milliseconds. For programs in C and C++.
// It asks for no memory: the programs' figures are tested.
#pragma once
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Also where that thread is no more.
static inline int is_asleep(int process, int thread) {
  char text[512];
  snprintf(text, sizeof text, "/proc/%d/task/%d/stat", process, thread);
  const int file = open(text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 1;
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 1;
  text[length] = '\0';
  // `number (name) state ...`; the name may hold parentheses.
  const char* const state = strrchr(text, ')');
  return !state || strchr("SDZX", state[2]) != NULL;
}

static inline void wait_until_asleep(int process, int thread) {
  for (int i = 0; !is_asleep(process, thread); ++i) {
    if (i == 200 * 1000) abort();  // minutes
    usleep(1000);
  }
}
