// Calls of the test programs that have no reason to fail.
#pragma once
#include <cstdio>
#include <cstdlib>

inline void need(int code, const char* what) {
  if (!code) return;
  std::printf("failed: %s: %d\n", what, code);
  std::exit(90);
}
#define NEED(call) need(call, #call)
