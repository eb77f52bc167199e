// Extents against a map of bytes: random cuts and changes of state, with a printed seed.
#include "pool/ranges/extents.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/support/random.hpp"

namespace cistern::ranges {
namespace {

constexpr std::uint64_t kEnd = 4096;  // granules

struct Cell {
  State state = State::bare;
  Order order = kAnyOrder;
  int owner = 0;  // only a live or busy cell has one
  bool operator==(const Cell&) const = default;
};

using Runs = std::map<std::pair<std::uint64_t, std::uint64_t>, const Extent*>;

// The best fit is the smallest run; of those that are not in lists, that at the lowest address.
template <class Sizes>
void compare_sizes(const Sizes& sizes, const Runs& runs) {
  ASSERT_EQ(sizes.empty(), runs.empty());
  for (const std::uint64_t granules : {1, 7, 40, 63, 64, 100, 300}) {
    const auto best = runs.lower_bound({granules * kGranule, 0});
    const Extent* const found = sizes.best_fit(granules * kGranule);
    ASSERT_EQ(found == nullptr, best == runs.end());
    if (!found) continue;
    ASSERT_EQ(found->bytes, best->first.first);
    ASSERT_TRUE(found == best->second || found->bytes < BySize::kListedBytes);
  }
  std::set<const Extent*> seen;
  std::uint64_t last = ~std::uint64_t{0};
  for (const Extent* extent = sizes.largest(); extent; extent = sizes.next_smaller(*extent)) {
    ASSERT_TRUE(runs.contains({extent->bytes, extent->first}));
    ASSERT_TRUE(seen.insert(extent).second);
    ASSERT_LE(extent->bytes, last);
    last = extent->bytes;
  }
  ASSERT_EQ(seen.size(), runs.size());
}

// The extents are those runs of equal cells.
void compare(const Extents& extents, const Extent* front, const std::vector<Cell>& cells) {
  std::uint64_t at = 0;
  std::map<Order, Runs> free;
  for (const Extent* extent = front; extent; extent = extent->after) {
    ASSERT_EQ(extent->first, at * kGranule);
    ASSERT_GT(extent->bytes, 0u);
    const Cell& cell = cells[at];
    ASSERT_EQ(extent->state, cell.state);
    if (cell.state == State::free) {
      ASSERT_EQ(extent->order, cell.order);
    }
    std::uint64_t end = at;
    while (end < kEnd && cells[end] == cell) ++end;
    ASSERT_EQ(extent->end(), end * kGranule);
    if (extent->state == State::free) free[extent->order][{extent->bytes, extent->first}] = extent;
    if (extent->after) {
      ASSERT_EQ(extent->after->before, extent);
    }
    at = end;
  }
  ASSERT_EQ(at, kEnd);
  compare_sizes(extents.free(), free[kAnyOrder]);
  for (const Order order : {1, 2}) compare_sizes(extents.waiting(order), free[order]);
}

TEST(Extents, AreTheRunsOfEqualCells) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE("CISTERN_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  Extents extents;
  Extent* const front = extents.cut(extents.set(extents.add(0, kEnd * kGranule), State::bare), 0, kGranule);
  extents.set(front, State::live);
  for (const Order order : {1, 2}) extents.serve(order);
  std::vector<Cell> cells(kEnd);
  cells[0] = {State::live, kAnyOrder, -1};
  int owners = 0;
  const auto paint = [&](std::uint64_t first, std::uint64_t bytes, Cell cell) {
    for (std::uint64_t i = first; i < first + bytes; i += kGranule) cells[i / kGranule] = cell;
  };
  for (int step = 0; step < 20'000; ++step) {
    std::vector<Extent*> all;
    for (Extent* extent = front->after; extent; extent = extent->after) all.push_back(extent);
    Extent* extent = all[random() % all.size()];
    if (extent->state == State::free || extent->state == State::bare) {
      const std::uint64_t first = extent->first + random() % (extent->bytes / kGranule) * kGranule;
      const std::uint64_t granules = (extent->end() - first) / kGranule;
      const std::uint64_t bytes = (1 + random() % std::min<std::uint64_t>(granules, 200)) * kGranule;
      extent = extents.cut(extent, first, bytes);
      ASSERT_EQ(extent->state, State::busy);
    }
    const State state = random() % 3 == 0 ? State::bare : random() % 2 ? State::free : State::live;
    const Order order = state == State::free ? random() % 3 : kAnyOrder;
    paint(extent->first, extent->bytes, {state, order, state == State::live ? ++owners : 0});
    extents.set(extent, state, order);
    if (step % 20 == 0) compare(extents, front, cells);
    if (HasFatalFailure()) return;
  }
}

TEST(Extents, ReuseTheirNodes) {
  Extents extents;
  Extent* whole = extents.set(extents.add(0, kEnd * kGranule), State::bare);
  const std::size_t before = internal_mapped_bytes();
  for (int i = 0; i < 1'000'000; ++i) {
    Extent* const one = extents.cut(whole, 16 * kGranule, 16 * kGranule);
    whole = extents.set(extents.set(one, State::live), State::bare);
  }
  EXPECT_LE(internal_mapped_bytes() - before, std::size_t{64} << 10);
  EXPECT_EQ(whole->bytes, kEnd * kGranule);
}

}  // namespace
}  // namespace cistern::ranges
