// The pools of ranges and segments beside their model, in four threads: so many operations in strict, deferred and
// stream order, and with calls that fail. Short runs have a planted fault, which the model has to find.
//
//   range_models [OPERATIONS [SEED]]
//
// Prints a line for each run; ends with 1 where the model and a pool differ, or a planted fault was not found.
#include <cstdio>
#include <cstdlib>

#include "pool/ranges/range_pool.hpp"
#include "pool/ranges/segment_pool.hpp"
#include "tests/support/fake_ranges.hpp"
#include "tests/support/fake_segments.hpp"
#include "tests/support/random.hpp"
#include "tests/support/range_model.hpp"

namespace {

using cistern::ranges::RangePool;
using cistern::ranges::SegmentPool;
using cistern::test::FakeRanges;
using cistern::test::FakeSegments;
using cistern::test::Planted;
using cistern::test::RangeBooks;
using cistern::test::RangeWork;

constexpr int kThreads = 4;

struct Run {
  const char* name;
  RangeWork work;
  int fail_every = 0;
};

int faults_of_ranges(const Run& run, long steps, unsigned seed) {
  FakeRanges driver;
  driver.fail_every = run.fail_every;
  cistern::ranges::RangeSettings settings{std::uint64_t{1} << 40, std::uint64_t{1} << 44};
  settings.reuse_in_order = run.work.reuses_in_order;
  RangePool<FakeRanges> pool(driver, settings);
  RangeBooks books;
  run_range_models(pool, driver, books, run.work, kThreads, steps, seed);
  return books.faults + (driver.physical() != 0);
}

int faults_of_segments(const Run& run, long steps, unsigned seed) {
  FakeSegments source;
  source.fail_every = run.fail_every;
  SegmentPool<FakeSegments> pool(source, {.reuse_in_order = run.work.reuses_in_order});
  RangeBooks books;
  run_range_models(pool, source, books, run.work, kThreads, steps, seed);
  return books.faults + (source.physical() != 0);
}

bool passes(const char* pool, const Run& run, int faults) {
  const bool passes = (faults > 0) == (run.work.planted != Planted::none);
  std::printf("%-9s %-24s %d faults: %s\n", pool, run.name, faults, passes ? "right" : "WRONG");
  std::fflush(stdout);
  return passes;
}

}  // namespace

int main(int count, char** arguments) {
  const long operations = count > 1 ? std::atol(arguments[1]) : 100'000'000;
  const unsigned seed =
      count > 2 ? static_cast<unsigned>(std::strtoul(arguments[2], nullptr, 10)) : cistern::test::new_seed();
  std::printf("seed %u, %ld operations\n", seed, operations);
  constexpr std::uint64_t kLarge = std::uint64_t{2} << 20;
  constexpr Run kRuns[] = {
      {"strict", {.large_bytes_max = kLarge, .strict = true}},
      {"deferred", {.large_bytes_max = kLarge, .reuses_in_order = false}},
      {"stream order", {.large_bytes_max = kLarge}},
      {"stream order, calls fail", {.large_bytes_max = kLarge}, 50},
  };
  constexpr Run kPlanted[] = {
      {"planted: early reuse", {.large_bytes_max = kLarge, .planted = Planted::early_reuse}},
      {"planted: two owners", {.large_bytes_max = kLarge, .planted = Planted::two_owners}},
      {"planted: no retirement", {.large_bytes_max = kLarge, .planted = Planted::no_retirement}},
  };
  bool pass = true;
  const long steps = operations / (2 * kThreads * static_cast<long>(std::size(kRuns)));
  for (const Run& run : kRuns) {
    pass &= passes("ranges", run, faults_of_ranges(run, steps, seed));
    pass &= passes("segments", run, faults_of_segments(run, steps, seed));
  }
  for (const Run& run : kPlanted) {
    pass &= passes("ranges", run, faults_of_ranges(run, 50'000, seed));
    pass &= passes("segments", run, faults_of_segments(run, 50'000, seed));
  }
  return pass ? 0 : 1;
}
