// Sets of bits in growing families, as the logic minimiser espresso: complements of random covers by Shannon expansion.
// Every cube is a block of its own, every cover a table that grows by realloc. Proved by sampled points: each lies in
// the cover or in its complement, never in both.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr unsigned kVariablesMin = 12, kVariablesMax = 20, kCovers = 140, kPointsTried = 2000;

// Bit i of `zero` and `one`: variable i may be 0, may be 1. The spare words are the size that wider problems have.
struct Cube {
  std::uint32_t zero, one;
  std::uint32_t spare[];
};

struct Cover {
  Cube** cubes = nullptr;
  std::size_t count = 0, room = 0;
  unsigned variables = 0;
};

void add(Cover& cover, std::uint32_t zero, std::uint32_t one) {
  if (cover.count == cover.room) {
    cover.room = cover.room == 0 ? 4 : cover.room + cover.room / 2;
    cover.cubes = static_cast<Cube**>(std::realloc(cover.cubes, cover.room * sizeof(Cube*)));
    require(cover.cubes != nullptr, "realloc returned null");
  }
  auto* cube = static_cast<Cube*>(std::malloc(sizeof(Cube) + cover.variables / 4 * sizeof(std::uint32_t)));
  require(cube != nullptr, "malloc returned null");
  *cube = {.zero = zero, .one = one};
  cover.cubes[cover.count++] = cube;
}

void release(Cover& cover) {
  for (std::size_t at = 0; at < cover.count; ++at) std::free(cover.cubes[at]);
  std::free(cover.cubes);
  cover = {};
}

bool contains(const Cover& cover, std::uint32_t point) {
  const std::uint32_t all = (1U << cover.variables) - 1;
  for (std::size_t at = 0; at < cover.count; ++at)
    if (((point & ~cover.cubes[at]->one) | (~point & all & ~cover.cubes[at]->zero)) == 0) return true;
  return false;
}

Cover cofactor(const Cover& cover, std::uint32_t variable, bool value) {
  Cover result{.variables = cover.variables};
  for (std::size_t at = 0; at < cover.count; ++at) {
    const Cube& cube = *cover.cubes[at];
    if (((value ? cube.one : cube.zero) & variable) != 0) add(result, cube.zero | variable, cube.one | variable);
  }
  return result;
}

/// The variable that most cubes are decided in, or 0 where a cube is decided in none.
std::uint32_t splitting_variable(const Cover& cover) {
  unsigned most = 0;
  std::uint32_t best = 0;
  const std::uint32_t all = (1U << cover.variables) - 1;
  for (std::size_t at = 0; at < cover.count; ++at)
    if ((cover.cubes[at]->zero & cover.cubes[at]->one) == all) return 0;
  for (std::uint32_t variable = 1; variable <= all; variable <<= 1) {
    unsigned decided = 0;
    for (std::size_t at = 0; at < cover.count; ++at)
      decided += (cover.cubes[at]->zero & cover.cubes[at]->one & variable) == 0;
    if (decided > most) {
      most = decided;
      best = variable;
    }
  }
  return best;
}

Cover complement(const Cover& cover) {
  Cover result{.variables = cover.variables};
  const std::uint32_t all = (1U << cover.variables) - 1;
  if (cover.count == 0) {
    add(result, all, all);
    return result;
  }
  const std::uint32_t variable = splitting_variable(cover);
  if (variable == 0) return result;
  Cover parts[2];
  for (bool value : {false, true}) {
    Cover half = cofactor(cover, variable, value);
    parts[value] = complement(half);
    release(half);
  }
  // A cube of both halves is one cube that does not ask for the variable.
  for (std::size_t at = 0; at < parts[0].count; ++at) {
    Cube& cube = *parts[0].cubes[at];
    bool merged = false;
    for (std::size_t other = 0; other < parts[1].count && !merged; ++other) {
      Cube& twin = *parts[1].cubes[other];
      merged = twin.zero == cube.zero && twin.one == cube.one && twin.one != 0;
      if (merged) twin.zero = twin.one = 0;
    }
    add(result, cube.zero, merged ? cube.one : cube.one & ~variable);
  }
  for (std::size_t at = 0; at < parts[1].count; ++at)
    if (const Cube& cube = *parts[1].cubes[at]; cube.one != 0 || cube.zero != 0)
      add(result, cube.zero & ~variable, cube.one);
  release(parts[0]);
  release(parts[1]);
  return result;
}

void run(const Setting& setting) {
  Random random(setting.seed);
  for (unsigned done = 0; done < kCovers; ++done) {
    Cover cover{.variables = static_cast<unsigned>(random.between(kVariablesMin, kVariablesMax))};
    for (unsigned cubes = 2 * cover.variables; cubes > 0; --cubes) {
      // Three variables of eight are decided.
      const auto free = static_cast<std::uint32_t>(random.next() | (random.next() & random.next()));
      const auto value = static_cast<std::uint32_t>(random.next());
      const std::uint32_t all = (1U << cover.variables) - 1;
      add(cover, (free | ~value) & all, (free | value) & all);
    }
    Cover rest = complement(cover);
    for (unsigned tried = 0; tried < kPointsTried; ++tried) {
      const auto point = static_cast<std::uint32_t>(random.below(std::size_t{1} << cover.variables));
      require(contains(cover, point) != contains(rest, point), "the complement is wrong");
    }
    release(cover);
    release(rest);
  }
}

const Workload espresso("espresso", run);

}  // namespace
}  // namespace host_bench
