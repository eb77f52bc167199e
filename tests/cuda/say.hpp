// How the test programs speak, and what they say of themselves at their end. They are ordinary CUDA programs that know
// nothing of Cistern: each prints every observation as a deterministic line, so that its output can be compared byte
// for byte between ways of running it (run_ways.py). No addresses, no timings, no contents that are undefined.
//
// A program's first comment carries what the harness checks besides:
//   harness: leaks=device:2,pinned:1   live blocks at exit, by kind (none when absent), for the arguments below it
//   harness: recycles=device           the pool must have served something of that kind
//   harness: leak-sites=a,b            functions that the call sites of leaks must name
//   harness: says=REGEX                a line that the shim must write (unless its pools are off)
//   harness: says-of-ranges=REGEX      the same where device memory comes from ranges
//   harness: exit=N                    exit code (0 when absent)
//   harness: arguments=...             a command line; several lines: run with each. {shim} is the shared object
//   harness: environment=NAME=VALUE    for every way
//   harness: simulator-only            needs the simulated driver: not run on a real one
//   harness: figures=off               no report, or one whose counts have no meaning
//   harness: dropped=device:2          blocks that went with their context, never freed
//   harness: stages=both               asked to, copies of both directions go through pinned chunks
//   harness: unknown=a,b               functions of the driver, asked for by name, that the report must say are unknown
//   harness: passes-on=REASON          then too, some copy was left to the driver for that reason
//   harness: per-thread                built also for per-thread default streams
//   harness: nvcc                      built also with nvcc, where there is one
//   harness: link=none                 linked with nothing of CUDA; link=shared: with the shared runtime only
#pragma once
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

[[gnu::format(printf, 1, 2)]] inline void say(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  puts(line);
  fflush(stdout);
}

// Successful calls that made memory, by the kind that the report has for it.
struct Made {
  std::atomic<int> device{0}, pinned{0}, managed{0}, async{0}, graph{0}, array{0}, vmm{0}, registered{0}, external{0};
};
inline Made made;

inline void say_made() {
  say("made: device %d, pinned %d, managed %d, async %d, graph %d, array %d, vmm %d, registered %d, external %d",
      made.device.load(), made.pinned.load(), made.managed.load(), made.async.load(), made.graph.load(),
      made.array.load(), made.vmm.load(), made.registered.load(), made.external.load());
}

// The last line of every program: the harness compares it with the report's allocations.
inline int finish(int code = 0) {
  say_made();
  return code;
}

// Whether device blocks are cut from ranges of virtual memory. The driver answers a few questions about that memory
// differently. A program that asks them says whether the answer is the right one.
inline bool in_ranges() {
  const char* const pool = getenv("CISTERN_DEVICE_POOL");
  return pool && strcmp(pool, "ranges") == 0;
}

inline const char* yes_no(bool value) { return value ? "yes" : "no"; }

// "all 7", or the first word that differs.
inline std::string describe(const std::vector<unsigned>& words) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] != words[0])
      return std::to_string(words[0]) + ", then " + std::to_string(words[i]) + " at word " + std::to_string(i);
  }
  return words.empty() ? "empty" : "all " + std::to_string(words[0]);
}
