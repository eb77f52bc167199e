// Extents against a map of bytes: random cuts and changes of state, with a printed seed.
#include "pool/ranges/extents.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "tests/support/random.hpp"

namespace cistern::ranges {
namespace {

constexpr std::uint64_t kEnd = 4096;

struct Cell {
  State state = State::bare;
  Order order = kAnyOrder;
  int owner = 0;  // only a live or busy cell has one
  bool operator==(const Cell&) const = default;
};

// The extents are those runs of equal cells, and the best fit is the smallest run, at the lowest address.
void compare(const Extents& extents, const Extent* front, const std::vector<Cell>& cells) {
  std::uint64_t at = 0;
  std::map<Order, std::map<std::pair<std::uint64_t, std::uint64_t>, const Extent*>> free;
  for (const Extent* extent = front; extent; extent = extent->after) {
    ASSERT_EQ(extent->first, at);
    ASSERT_GT(extent->bytes, 0u);
    const Cell& cell = cells[at];
    ASSERT_EQ(extent->state, cell.state);
    if (cell.state == State::free) {
      ASSERT_EQ(extent->order, cell.order);
    }
    std::uint64_t end = at;
    while (end < kEnd && cells[end] == cell) ++end;
    ASSERT_EQ(extent->end(), end);
    if (extent->state == State::free) free[extent->order][{extent->bytes, extent->first}] = extent;
    if (extent->after) {
      ASSERT_EQ(extent->after->before, extent);
    }
    at = end;
  }
  ASSERT_EQ(at, kEnd);
  for (const Order order : {kAnyOrder, Order{1}, Order{2}}) {
    const auto& runs = free[order];
    const BySize* const sizes = extents.free_of(order);
    ASSERT_EQ(sizes != nullptr, !runs.empty());
    for (const std::uint64_t bytes : {1, 7, 40, 300}) {
      const auto best = runs.lower_bound({bytes, 0});
      ASSERT_EQ(extents.best_fit(bytes, order), best == runs.end() ? nullptr : best->second);
    }
    if (!sizes) continue;
    const Extent* extent = sizes->largest();
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      ASSERT_EQ(extent, run->second);
      extent = sizes->next_smaller(*extent);
    }
    ASSERT_EQ(extent, nullptr);
  }
}

TEST(Extents, AreTheRunsOfEqualCells) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE("CISTERN_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  Extents extents;
  Extent* const front = extents.cut(extents.set(extents.add(0, kEnd), State::bare), 0, 1);
  extents.set(front, State::live);
  for (const Order order : {1, 2}) extents.serve(order);
  std::vector<Cell> cells(kEnd);
  cells[0] = {State::live, kAnyOrder, -1};
  int owners = 0;
  const auto paint = [&](std::uint64_t first, std::uint64_t bytes, Cell cell) {
    for (std::uint64_t i = first; i < first + bytes; ++i) cells[i] = cell;
  };
  for (int step = 0; step < 20'000; ++step) {
    std::vector<Extent*> all;
    for (Extent* extent = front->after; extent; extent = extent->after) all.push_back(extent);
    Extent* extent = all[random() % all.size()];
    if (extent->state == State::free || extent->state == State::bare) {
      const std::uint64_t first = extent->first + random() % extent->bytes;
      const std::uint64_t bytes = 1 + random() % std::min<std::uint64_t>(extent->end() - first, 200);
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
  Extent* whole = extents.set(extents.add(0, kEnd), State::bare);
  const std::size_t before = internal_mapped_bytes();
  for (int i = 0; i < 1'000'000; ++i) {
    Extent* const one = extents.cut(whole, 16, 16);
    whole = extents.set(extents.set(one, State::live), State::bare);
  }
  EXPECT_LE(internal_mapped_bytes() - before, std::size_t{64} << 10);
  EXPECT_EQ(whole->bytes, kEnd);
}

}  // namespace
}  // namespace cistern::ranges
