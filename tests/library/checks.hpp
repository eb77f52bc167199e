// What the example programs check with: every failure is a line on stdout, and the last line says how it went.
#pragma once
#include <cistern/cistern.h>

#include <cstdio>

inline int failures = 0;

inline void check(bool ok, const char* what) {
  if (ok) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

inline cistern_statistics statistics(cistern_kind kind) {
  cistern_statistics figures{};
  check(cistern_get_statistics(kind, &figures) == 0, "statistics of a kind that exists");
  return figures;
}

// The exit code.
inline int say_how_it_went() {
  std::printf(failures ? "%d failures\n" : "all right\n", failures);
  return failures != 0;
}
