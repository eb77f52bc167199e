// AddressTable against a model, grown and churned, and read by threads while another writes.
#include "pool/base/address_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/random.hpp"

namespace cistern {
namespace {

struct Thing {
  std::atomic<std::uintptr_t> address{0};
};

class AddressTableTest : public testing::Test {
 protected:
  Thing* insert(std::uintptr_t address) {
    Thing& thing = things.emplace_back();
    thing.address = address;
    table.insert(address, &thing);
    return &thing;
  }
  std::set<std::uintptr_t> listed() {
    std::set<std::uintptr_t> addresses;
    table.for_each([&](Thing& thing) { EXPECT_TRUE(addresses.insert(thing.address).second) << "listed twice"; });
    return addresses;
  }

  AddressTable<Thing> table;
  std::deque<Thing> things;
};

TEST_F(AddressTableTest, AnEmptyTableHasNothing) {
  EXPECT_EQ(table.find(4096), nullptr);
  table.erase(4096, table.find(4096));
  table.clear();
  EXPECT_TRUE(listed().empty());
}

TEST_F(AddressTableTest, FindsWhatWasInsertedUntilItIsErased) {
  Thing* thing = insert(4096);
  EXPECT_EQ(table.find(4096), thing);
  EXPECT_EQ(table.find(4097), nullptr);
  table.erase(4096, table.find(4096));
  EXPECT_EQ(table.find(4096), nullptr);
  Thing* again = insert(4096);
  EXPECT_EQ(table.find(4096), again);
}

TEST_F(AddressTableTest, TheMarksOfUnusedAndErasedSlotsAreNoAddresses) {
  std::set<std::uintptr_t> kept;
  for (std::uintptr_t address = 512; address <= 512 * 400; address += 512) {
    insert(address);
    kept.insert(address);
  }
  for (std::uintptr_t address = 1024; address <= 512 * 400; address += 1024) {
    table.erase(address, table.find(address));
    kept.erase(address);
  }
  for (std::uintptr_t mark : {0, 1}) {
    EXPECT_EQ(table.find(mark), nullptr);
    for (int i = 0; i < 300; ++i) table.erase(mark, table.find(mark));
  }
  EXPECT_EQ(listed(), kept);
  for (std::uintptr_t address = 1024; address <= 512 * 400; address += 1024) insert(address);
  EXPECT_EQ(listed().size(), 400u);
  for (std::uintptr_t address = 512; address <= 512 * 400; address += 512) EXPECT_NE(table.find(address), nullptr);
}

TEST_F(AddressTableTest, AHitNeedsTheObjectToConfirm) {
  Thing* thing = insert(4096);
  thing->address = 0;
  // The table is asked once more under its lock, and then believed: whoever clears an address erases it as well.
  EXPECT_EQ(table.find(4096), thing);
  table.erase(4096, table.find(4096));
  EXPECT_EQ(table.find(4096), nullptr);
}

TEST_F(AddressTableTest, ClearForgetsAllAndTheTableStaysOfUse) {
  for (std::uintptr_t address = 512; address <= 512 * 1000; address += 512) insert(address);
  table.clear();
  EXPECT_TRUE(listed().empty());
  EXPECT_EQ(table.find(512), nullptr);
  for (std::uintptr_t address = 512; address <= 512 * 1000; address += 512) insert(address);
  EXPECT_EQ(listed().size(), 1000u);
}

TEST_F(AddressTableTest, AHundredThousandEntriesAtAnyStride) {
  for (std::uintptr_t stride : {std::uintptr_t{512}, std::uintptr_t{4096}, std::uintptr_t{2} << 20}) {
    constexpr std::uintptr_t kEntries = 100'000, kBase = std::uintptr_t{0x7f00} << 32;
    table.clear();
    for (std::uintptr_t i = 0; i < kEntries; ++i) insert(kBase + i * stride);
    for (std::uintptr_t i = 0; i < kEntries; ++i) {
      Thing* found = table.find(kBase + i * stride);
      ASSERT_TRUE(found) << "stride " << stride << ", entry " << i;
      ASSERT_EQ(found->address, kBase + i * stride);
    }
    for (std::uintptr_t i = 0; i < kEntries; i += 2) table.erase(kBase + i * stride, table.find(kBase + i * stride));
    for (std::uintptr_t i = 0; i < kEntries; ++i) ASSERT_EQ(table.find(kBase + i * stride) != nullptr, i % 2 == 1);
    EXPECT_EQ(listed().size(), kEntries / 2);
  }
}

// Large blocks are aligned to their size, so that low bits tell nothing apart.
TEST_F(AddressTableTest, FindingIsAsCheapAtCoarseAlignments) {
  constexpr std::uintptr_t kEntries = 20'000, kBase = std::uintptr_t{1} << 40;
  const auto time_of_finding_all = [&](int shift) {
    table.clear();
    for (std::uintptr_t i = 0; i < kEntries; ++i) insert(kBase + (i << shift));
    auto best = std::chrono::steady_clock::duration::max();
    for (int round = 0; round < 5; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (std::uintptr_t i = 0; i < kEntries; ++i) EXPECT_TRUE(table.find(kBase + (i << shift)));
      best = std::min(best, std::chrono::steady_clock::now() - begin);
    }
    return best;
  };
  const auto fine = time_of_finding_all(9);
  for (int shift : {21, 25, 30}) EXPECT_LT(time_of_finding_all(shift), fine * 15) << "aligned to 2^" << shift;
}

TEST_F(AddressTableTest, ChurnWithFewEntriesTakesNoMoreMemory) {
  constexpr int kEntries = 300;
  std::vector<Thing*> live;
  std::uintptr_t next = 512;
  const auto churn = [&](int rounds) {
    for (int i = 0; i < rounds; ++i, next += 512) {
      Thing* thing = live[static_cast<std::size_t>(i % kEntries)];
      table.erase(thing->address, table.find(thing->address));
      thing->address = next;
      table.insert(next, thing);
    }
  };
  for (int i = 0; i < kEntries; ++i, next += 512) live.push_back(insert(next));
  churn(50'000);
  const std::size_t before = internal_mapped_bytes();
  churn(500'000);
  EXPECT_LE(internal_mapped_bytes(), before + 256 * 1024);
  for (Thing* thing : live) EXPECT_EQ(table.find(thing->address), thing);
  EXPECT_EQ(listed().size(), static_cast<std::size_t>(kEntries));
}

TEST_F(AddressTableTest, WorksAfterTheForkHandlers) {
  insert(4096);
  table.before_fork();
  table.after_fork();
  EXPECT_TRUE(table.find(4096));
  EXPECT_FALSE(table.find(8192));
}

TEST_F(AddressTableTest, AgreesWithAModelOverRandomSteps) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::map<std::uintptr_t, Thing*> model;
  for (int step = 0; step < 200'000; ++step) {
    // The number of addresses in play changes, so that the table grows, and then has to clear what was erased.
    const std::uintptr_t range = step % 50'000 < 25'000 ? 6000 : 200;
    const std::uintptr_t address = 512 * (1 + random() % range);
    auto known = model.find(address);
    ASSERT_EQ(table.find(address), known == model.end() ? nullptr : known->second) << "step " << step;
    const bool insert_it = random() % 2;
    if (insert_it && known == model.end())
      model[address] = insert(address);
    else if (!insert_it && known != model.end()) {
      table.erase(address, table.find(address));
      known->second->address = 0;
      model.erase(known);
    }
    if (step % 20'000) continue;
    std::set<std::uintptr_t> expected;
    for (auto& [key, thing] : model) expected.insert(key);
    ASSERT_EQ(listed(), expected);
  }
}

// One thread inserts, erases and grows; the others must always find what is there all the time, and of the rest only
// what says itself that it stands for the address at some time.
TEST_F(AddressTableTest, ReadersAreNeverMisled) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  constexpr std::uintptr_t kSteady = 100, kChurned = 4000;
  std::vector<Thing*> steady, churned;
  for (std::uintptr_t i = 0; i < kSteady; ++i) steady.push_back(insert(512 * (1 + i)));
  for (std::uintptr_t i = 0; i < kChurned; ++i) churned.push_back(&things.emplace_back());
  const auto churned_address = [](std::uintptr_t i) { return 512 * (1 + kSteady + i); };
  std::atomic<bool> over{false};
  std::atomic<int> missed{0}, wrong{0};
  const auto read = [&](unsigned id) {
    std::mt19937 random(seed + id);
    while (!over.load()) {
      const std::uintptr_t i = random() % kSteady, j = random() % kChurned;
      if (table.find(512 * (1 + i)) != steady[i]) ++missed;
      Thing* found = table.find(churned_address(j));
      if (found && found != churned[j]) ++wrong;
    }
  };
  std::vector<std::thread> readers;
  for (unsigned id = 1; id <= 3; ++id) readers.emplace_back(read, id);
  std::mt19937 random(seed);
  std::vector<bool> in(kChurned);
  for (int step = 0; step < 200'000; ++step) {
    const std::uintptr_t j = random() % (step < 100'000 ? kChurned : 50);
    if (in[j]) {
      table.erase(churned_address(j), table.find(churned_address(j)));
      churned[j]->address = 0;
    } else {
      churned[j]->address = churned_address(j);
      table.insert(churned_address(j), churned[j]);
    }
    in[j] = !in[j];
  }
  over = true;
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(missed, 0);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace cistern
