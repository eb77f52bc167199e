// __libc_single_threaded, by which reference counts of the standard library's headers spare locked instructions, where
// the C library is one that has it (2.32), and a zero elsewhere. Included before all else in every file: the headers
// read the C library's variable by its name. It costs what that costs, one load of an address that the loader filled
// in.
#pragma once
#include <sys/single_threaded.h>

extern "C" {
struct CisternThreads {
  char single;
};
[[gnu::visibility("hidden")]] extern const struct CisternThreads* const cistern_threads;
}

#define __libc_single_threaded cistern_threads->single
