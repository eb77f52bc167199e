// Threads that make, hand over, use and end memory objects at random, while some of them count, report and trim.
#pragma once
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <cistern/cistern.h>

namespace instrumented {

inline void require(bool holds, const char* what, int line, long answer) {
  if (holds) return;
  fflush(stdout);
  fprintf(stderr, "broken: line %d: %s: %ld\n", line, what, answer);
  _exit(1);
}
#define REQUIRE(call, wanted)                                                            \
  do {                                                                                   \
    const auto answer = call;                                                            \
    instrumented::require(answer == wanted, #call, __LINE__, static_cast<long>(answer)); \
  } while (0)

using Random = std::mt19937;

// The seed of all threads: CISTERN_TEST_SEED, or a new one, which is said.
inline unsigned seed() {
  const char* given = getenv("CISTERN_TEST_SEED");
  const unsigned value = given ? static_cast<unsigned>(strtoul(given, nullptr, 10)) : std::random_device()();
  printf("CISTERN_TEST_SEED=%u\n", value);
  fflush(stdout);
  return value;
}

inline void ask(Random& random, cistern_kind kind) {
  cistern_statistics figures = {};
  figures.struct_bytes = sizeof figures;
  switch (random() % 40) {
    case 0: {
      const std::string path = "report-" + std::to_string(getpid()) + "-" + std::to_string(random()) + ".json";
      REQUIRE(cistern_report(path.c_str(), random() % 2 ? CISTERN_JSON : CISTERN_TEXT), 0);
      unlink(path.c_str());
      return;
    }
    case 1:
    case 2:
      cistern_trim(kind, random() % 2 ? 0 : 1 << 20, nullptr);
      return;
    default:
      REQUIRE(cistern_get_statistics(kind, &figures), 0);
      REQUIRE((figures.live_blocks < 1u << 30), true);
  }
}

// Each thread calls work(random) with a random sequence of its own.
template <class Work>
void run_threads(unsigned seed, Work work) {
  constexpr unsigned kThreads = 6;
  std::vector<std::thread> running;
  for (unsigned t = 0; t < kThreads; ++t) running.emplace_back([=] { work(Random(seed + t)); });
  for (std::thread& thread : running) thread.join();
}

inline void require_counted(cistern_kind kind, unsigned long made, const char* name) {
  cistern_statistics figures = {};
  figures.struct_bytes = sizeof figures;
  REQUIRE(cistern_get_statistics(kind, &figures), 0);
  printf("%s: %lu made, counted %llu, freed %llu, live %llu\n", name, made,
         static_cast<unsigned long long>(figures.allocations), static_cast<unsigned long long>(figures.frees),
         static_cast<unsigned long long>(figures.live_blocks));
  REQUIRE((figures.allocations == made && figures.frees == made && !figures.live_blocks && !figures.live_bytes), true);
}

}  // namespace instrumented
