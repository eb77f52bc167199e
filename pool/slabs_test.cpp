// Slabs against a model: a piece is in one pair of hands, lies in its slab, and none is left behind.
#include "pool/slabs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/support/random.hpp"

namespace cistern {
namespace {

constexpr std::uint64_t kSlabBytes = 4096;

PoolKey key(std::uint64_t bytes, std::uintptr_t group = 1) { return {group, 0, bytes}; }

TEST(Slabs, PiecesOfASlabAreApartAndFillIt) {
  Slabs slabs;
  EXPECT_FALSE(slabs.take(key(1024)));
  std::set<std::uintptr_t> pieces = {slabs.add(key(1024), 0x10000, kSlabBytes, 7).address};
  while (const auto piece = slabs.take(key(1024))) {
    EXPECT_EQ(piece->slab->life, 7u);
    pieces.insert(piece->address);
  }
  EXPECT_EQ(pieces, (std::set<std::uintptr_t>{0x10000, 0x10400, 0x10800, 0x10c00}));
  EXPECT_FALSE(slabs.take(key(1024, 2))) << "of another group";
}

TEST(Slabs, APieceThatMayNotBeGivenAnewGoesWithItsSlab) {
  Slabs slabs;
  const Slabs::Piece first = slabs.add(key(2048), 0x10000, kSlabBytes, 0), second = *slabs.take(key(2048));
  EXPECT_FALSE(slabs.give_back(first.slab, first.address, false));
  EXPECT_FALSE(slabs.take(key(2048)));
  EXPECT_TRUE(slabs.give_back(second.slab, second.address, true));
  EXPECT_FALSE(slabs.take(key(2048))) << "the slab is gone";
  Slabs::end(second.slab);
}

TEST(Slabs, AGroupIsForgottenAndTheOthersStay) {
  Slabs slabs;
  slabs.add(key(1024, 1), 0x10000, kSlabBytes, 0);
  slabs.add(key(512, 1), 0x20000, kSlabBytes, 0);
  slabs.add(key(1024, 2), 0x30000, kSlabBytes, 0);
  std::set<std::uintptr_t> forgotten;
  slabs.forget(1, [&](const Slab& slab) { forgotten.insert(slab.first); });
  EXPECT_EQ(forgotten, (std::set<std::uintptr_t>{0x10000, 0x20000}));
  EXPECT_FALSE(slabs.take(key(1024, 1)));
  EXPECT_TRUE(slabs.take(key(1024, 2)));
}

TEST(Slabs, HoldAgainstAModel) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  Slabs slabs;
  std::vector<Slabs::Piece> held;
  std::set<std::uintptr_t> addresses;
  std::map<Slab*, std::size_t> given;  // of each slab that there is
  std::uintptr_t next = 0x10000;
  for (int step = 0; step < 20000; ++step) {
    const PoolKey of = key(64u << random() % 5, 1 + random() % 2);
    if (held.empty() || random() % 100 < (step / 2000 % 2 ? 40u : 60u)) {
      // Two threads may have found no room, and the second adds a slab beside the first one's.
      std::optional<Slabs::Piece> piece;
      if (random() % 8) piece = slabs.take(of);
      const bool is_new = !piece;
      if (is_new) piece = slabs.add(of, next, kSlabBytes, 0), next += kSlabBytes;
      ASSERT_EQ(given.count(piece->slab), is_new ? 0u : 1u);
      ASSERT_EQ(piece->slab->key, of);
      ASSERT_LT(piece->address - piece->slab->first, kSlabBytes);
      ASSERT_EQ((piece->address - piece->slab->first) % of.bytes, 0u);
      ASSERT_TRUE(addresses.insert(piece->address).second) << "in two pairs of hands";
      ++given[piece->slab];
      held.push_back(*piece);
      continue;
    }
    std::swap(held[random() % held.size()], held.back());
    const Slabs::Piece piece = held.back();
    held.pop_back();
    addresses.erase(piece.address);
    const bool is_last = --given[piece.slab] == 0;
    ASSERT_EQ(slabs.give_back(piece.slab, piece.address, random() % 8 != 0), is_last);
    if (!is_last) continue;
    given.erase(piece.slab);
    Slabs::end(piece.slab);
  }
  for (const Slabs::Piece& piece : held)
    if (slabs.give_back(piece.slab, piece.address, true)) given.erase(piece.slab), Slabs::end(piece.slab);
  EXPECT_TRUE(given.empty());
}

}  // namespace
}  // namespace cistern
