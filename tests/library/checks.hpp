// What the example programs check with: every failure is a line on stdout, and the last line says how it went.
#pragma once
#include <cistern/cistern.h>

#include <cistern/result.hpp>
#include <cstdio>

inline int failures = 0;

inline void check(bool ok, const char* what) {
  if (ok) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

inline cistern_statistics statistics(cistern_kind kind) {
  auto figures = cistern::sized<cistern_statistics>();
  check(cistern_get_statistics(kind, &figures) == CISTERN_OK, "statistics of a kind that exists");
  return figures;
}

inline std::size_t trim(cistern_kind kind, std::size_t keep_bytes = 0) {
  std::size_t returned = 0;
  check(cistern_trim(kind, keep_bytes, &returned) == CISTERN_OK, "trim of a kind that exists");
  return returned;
}

// The exit code.
inline int say_how_it_went() {
  std::printf(failures ? "%d failures\n" : "all right\n", failures);
  return failures != 0;
}
