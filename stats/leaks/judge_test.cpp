// Live memory judged in this process, which holds still: blocks of the host pool, and targets that are only addresses.
// The roots are an array of the test; where the picture is right, so is the judgement of each shape of pointers.
#include "stats/leaks/judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"

namespace cistern::leaks {
namespace {

using host_pool::Picture;
using host_pool::PictureBlock;

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
bool never_over() { return false; }

class JudgeTest : public testing::Test {
 protected:
  ~JudgeTest() override {
    for (void* block : blocks_) test::put(block);
  }

  // Zero, so that nothing leads anywhere by chance.
  std::uintptr_t* block(std::size_t bytes = 64) {
    void* const made = test::get(bytes);
    std::memset(made, 0, host_pool::usable_bytes(made));
    blocks_.push_back(made);
    return static_cast<std::uintptr_t*>(made);
  }
  void root(std::uintptr_t word) { roots_.push_back(word); }
  void root(const void* word) { root(address(word)); }
  void driver_root(const void* word) { driver_roots_.push_back(address(word)); }
  void target(std::uintptr_t first, std::uint64_t bytes, bool readable = false) {
    targets_.push_back({first, bytes, readable});
  }

  bool judge(bool (*is_over)() = never_over) {
    const auto by_first = [](const Target& a, const Target& b) { return a.first < b.first; };
    std::sort(targets_.begin(), targets_.end(), by_first);
    std::sort(handed_out_.begin(), handed_out_.end());
    table_.resize(Picture::table_bytes());
    EXPECT_TRUE(picture_.take(table_.data(), table_.size()));
    marks_.assign(picture_.numbers(), 0);
    std::vector<char> scratch(Judge::scratch_bytes());
    const auto of = [](const std::vector<std::uintptr_t>& words, bool of_driver) {
      return Root{address(words.data()), address(words.data() + words.size()), of_driver, Residency::of_pages};
    };
    const Root roots[] = {of(roots_, false), of(driver_roots_, true)};
    const World world{&picture_, targets_, roots, handed_out_, driver_words_, constants_, nullptr, integers_, in_use_};
    Judge judge(world, marks_.data(), scratch.data(), is_over);
    return judge.run();
  }
  Standing of(const void* pointer) {
    PictureBlock found;
    EXPECT_TRUE(picture_.find(address(pointer), found));
    EXPECT_EQ(found.first, address(pointer));
    EXPECT_TRUE(found.live);
    return standing_of(marks_[found.number]);
  }
  Standing of(std::uintptr_t first) {
    for (const Target& one : targets_)
      if (one.first == first) return one.standing;
    return Standing::none;
  }

  std::vector<void*> blocks_;
  std::vector<std::uintptr_t> roots_{0}, driver_roots_{0}, handed_out_, driver_words_;
  std::vector<Target> targets_;
  std::vector<Constants> constants_;
  PythonIntegers integers_;
  std::vector<std::uintptr_t> in_use_;
  Picture picture_;
  std::vector<char> table_;
  std::vector<std::uint8_t> marks_;
};

TEST_F(JudgeTest, AChainFromARootIsReachable) {
  std::uintptr_t *first = block(), *second = block(5000), *third = block(100'000), *alone = block();
  root(first);
  first[7] = address(second);
  second[0] = address(third);
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(first), Standing::reachable);
  EXPECT_EQ(of(second), Standing::reachable);
  EXPECT_EQ(of(third), Standing::reachable);
  EXPECT_EQ(of(alone), Standing::lost);
}

TEST_F(JudgeTest, WhatOnlyLostBlocksLeadToIsIndirectlyLost) {
  std::uintptr_t* blocks[4];
  for (auto& one : blocks) one = block();
  // The head lies behind, and before, what it leads to.
  blocks[2][1] = address(blocks[0]);
  blocks[2][2] = address(blocks[3]);
  blocks[3][0] = address(blocks[1]) + 8;  // an interior pointer
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(blocks[2]), Standing::lost);
  for (const int i : {0, 1, 3}) EXPECT_EQ(of(blocks[i]), Standing::indirectly_lost) << i;
}

TEST_F(JudgeTest, OfACycleOneIsLost) {
  std::uintptr_t *one = block(), *other = block(), *itself = block();
  one[0] = address(other);
  other[0] = address(one);
  itself[3] = address(itself);
  ASSERT_TRUE(judge());
  EXPECT_EQ((of(one) == Standing::lost) + (of(other) == Standing::lost), 1);
  EXPECT_EQ((of(one) == Standing::indirectly_lost) + (of(other) == Standing::indirectly_lost), 1);
  EXPECT_EQ(of(itself), Standing::lost);
}

TEST_F(JudgeTest, AHeadThatLeadsToACycleIsTheOneThatIsLost) {
  std::uintptr_t *one = block(), *other = block(), *head = block();
  one[0] = address(other);
  other[0] = address(one);
  head[0] = address(one);
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(head), Standing::lost);
  EXPECT_EQ(of(one), Standing::indirectly_lost);
  EXPECT_EQ(of(other), Standing::indirectly_lost);
}

TEST_F(JudgeTest, APointerIntoTheMidstIsNotCertain) {
  std::uintptr_t *midst = block(400), *behind = block(), *both = block(400), *by_reachable = block(400),
                 *kept = block();
  std::memset(midst, 0xff, 16);  // no length, no number of elements
  std::memset(both, 0xff, 16);
  std::memset(by_reachable, 0xff, 16);
  midst[5] = address(behind);
  root(address(midst) + 24);
  root(address(both) + 8);
  root(both);
  root(kept);
  kept[0] = address(by_reachable) + 1;
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(midst), Standing::possibly_lost);
  EXPECT_EQ(of(behind), Standing::possibly_lost);
  EXPECT_EQ(of(by_reachable), Standing::possibly_lost);
  EXPECT_EQ(of(both), Standing::reachable);
}

TEST_F(JudgeTest, APointerJustBehindABlockLeadsToTheNext) {
  std::vector<std::uintptr_t*> some(100);
  for (auto& one : some) one = block(64);
  std::sort(some.begin(), some.end());
  const auto next = std::adjacent_find(some.begin(), some.end(), [](auto* a, auto* b) { return a + 8 == b; });
  ASSERT_NE(next, some.end()) << "none are neighbours";
  root(address(next[0]) + 64);
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(next[0]), Standing::lost);
  EXPECT_EQ(of(next[1]), Standing::reachable);
}

// The forms of pointers from which programs know the start of a block.
TEST_F(JudgeTest, PointersBehindKnownHeadersLeadToTheBegin) {
  static constexpr std::uintptr_t kTables[] = {0, 0};
  constants_ = {{address(kTables), address(kTables + 2)}};
  std::uintptr_t *array = block(8 + 12 * 24), *length = block(1000), *vector = block(25 * 16), *text = block(24 + 101),
                 *base = block(96);
  array[0] = 12;
  root(address(array) + 8);
  length[0] = 1000 - 8;
  root(address(length) + 8);
  vector[0] = 23;
  root(address(vector) + 16);
  text[0] = 90, text[1] = 100;
  root(address(text) + 24);
  base[0] = address(kTables), base[4] = address(kTables + 1);
  root(address(base) + 32);
  ASSERT_TRUE(judge());
  for (const auto* one : {array, length, vector, text, base})
    EXPECT_EQ(of(one), Standing::reachable) << host_pool::usable_bytes(one);
}

TEST_F(JudgeTest, AnyAddressInsideATargetLeadsToIt) {
  constexpr std::uintptr_t kBegin = 0x7f12'0000'0000, kBytes = 1000;
  target(kBegin, kBytes);
  target(kBegin + kBytes, kBytes);
  target(kBegin + 2 * kBytes, kBytes);
  target(kBegin + 3 * kBytes, kBytes);
  target(kBegin + (std::uintptr_t{1} << 36), std::uintptr_t{1} << 38);  // larger than any map of parts
  std::uintptr_t* lost = block();
  lost[0] = kBegin + 2 * kBytes + 1;
  root(kBegin + 999);
  root(kBegin + (std::uintptr_t{1} << 37));
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(kBegin), Standing::reachable);
  EXPECT_EQ(of(kBegin + kBytes), Standing::lost);
  EXPECT_EQ(of(kBegin + 2 * kBytes), Standing::indirectly_lost);
  EXPECT_EQ(of(kBegin + 3 * kBytes), Standing::lost);
  EXPECT_EQ(of(kBegin + (std::uintptr_t{1} << 36)), Standing::reachable);
}

TEST_F(JudgeTest, PointersInReadableTargetsAreFollowed) {
  alignas(8) static std::uintptr_t kept[100], lost[100];
  std::uintptr_t *behind_kept = block(), *behind_lost = block();
  kept[99] = address(behind_kept);
  lost[50] = address(behind_lost);
  target(address(kept), sizeof kept, true);
  target(address(lost), sizeof lost, true);
  behind_lost[0] = address(lost);  // a cycle of two kinds
  root(kept);
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(address(kept)), Standing::reachable);
  EXPECT_EQ(of(behind_kept), Standing::reachable);
  EXPECT_EQ((of(address(lost)) == Standing::lost) + (of(behind_lost) == Standing::lost), 1);
  EXPECT_EQ((of(address(lost)) == Standing::indirectly_lost) + (of(behind_lost) == Standing::indirectly_lost), 1);
}

// The context knows every buffer, and the program has the context.
TEST_F(JudgeTest, WhatADriverHandedOutLeadsNowhereAtFirst) {
  std::uintptr_t *context = block(), *kept = block(), *dropped = block(), *in_struct = block(), *lost = block(),
                 *of_driver = block(), *unknown_object = block();
  for (const auto* handle : {kept, dropped, in_struct}) target(address(handle), 1);
  handed_out_ = {address(context), address(kept), address(dropped), address(in_struct)};
  driver_words_ = {4711};
  unknown_object[0] = 4711;
  unknown_object[1] = address(dropped);
  context[0] = address(kept);
  context[1] = address(dropped);
  context[2] = address(in_struct);
  context[3] = address(of_driver);
  lost[0] = address(in_struct);
  root(context);
  root(kept);
  root(unknown_object);
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(address(kept)), Standing::reachable);
  EXPECT_EQ(of(address(dropped)), Standing::held_by_driver);
  EXPECT_EQ(of(address(in_struct)), Standing::indirectly_lost) << "its holder is what was lost";
  EXPECT_EQ(of(of_driver), Standing::held_by_driver);
  EXPECT_EQ(of(lost), Standing::lost);
}

TEST_F(JudgeTest, DriversRootsComeLast) {
  std::uintptr_t *both = block(), *drivers = block(), *behind = block();
  driver_root(both);
  driver_root(drivers);
  drivers[1] = address(behind) + 8;
  root(both);
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(both), Standing::reachable);
  EXPECT_EQ(of(drivers), Standing::held_by_driver);
  EXPECT_EQ(of(behind), Standing::held_by_driver);
}

// Packed structures; what only keeps the end.
TEST_F(JudgeTest, OddAddressesAndEndsAreLookedAtLast) {
  std::uintptr_t *packed = block(400), *behind = block(), *both = block(), *not_begin = block(400);
  constexpr std::uintptr_t kBegin = 0x7f12'0000'0000, kBytes = 4096;
  target(kBegin, kBytes);               // by its end
  target(kBegin + kBytes * 2, kBytes);  // its end is the next one's begin
  target(kBegin + kBytes * 3, kBytes);
  target(kBegin + kBytes * 8, kBytes);  // by an address at an odd place
  std::memset(packed, 0xff, 16);
  packed[3] = address(behind);
  char bytes[64] = {};
  const std::uintptr_t odd[] = {address(packed), kBegin + kBytes * 8 + 100, address(not_begin) + 16};
  for (int i = 0; i < 3; ++i) std::memcpy(bytes + 3 + 9 * i, &odd[i], sizeof odd[i]);
  for (int i = 0; i < 8; ++i) {
    std::uintptr_t word;
    std::memcpy(&word, bytes + 8 * i, sizeof word);
    root(word);
  }
  root(kBegin + kBytes);
  root(kBegin + kBytes * 3);
  root(both);
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(packed), Standing::possibly_lost);
  EXPECT_EQ(of(behind), Standing::possibly_lost);
  EXPECT_EQ(of(both), Standing::reachable);
  EXPECT_EQ(of(not_begin), Standing::lost) << "into the midst, at an odd address: rather chance";
  EXPECT_EQ(of(kBegin), Standing::possibly_lost);
  EXPECT_EQ(of(kBegin + kBytes * 2), Standing::lost);
  EXPECT_EQ(of(kBegin + kBytes * 3), Standing::reachable);
  EXPECT_EQ(of(kBegin + kBytes * 8), Standing::possibly_lost);
}

// An object: references, type, size or tag, digits.
TEST_F(JudgeTest, IntegersOfPythonHoldWhatTheyAre) {
  constexpr std::uintptr_t kType = 0x7f33'0000'1000, kOther = 0x7f33'0000'2000;
  const auto integer = [&](std::uintptr_t references, std::uintptr_t type, std::uintptr_t size, const void* value) {
    for (const std::uintptr_t word : {references, type, size, std::uintptr_t{0}}) root(word);
    constexpr std::uintptr_t kDigit = (1 << 30) - 1;
    roots_.back() = (address(value) & kDigit) | (address(value) >> 30 & kDigit) << 32;
  };
  for (const bool has_tag : {false, true}) {
    roots_ = {0};
    const std::uintptr_t two_digits = has_tag ? 2 << 3 : 2, three = has_tag ? 3 << 3 : 3;
    const std::uintptr_t negative = has_tag ? 2 << 3 | 2 : std::uintptr_t{0} - 2;
    std::uintptr_t *held = block(), *freed = block(), *last = block(), *larger = block(), *minus = block(),
                   *other = block();
    integer(1, kType, two_digits, held);
    integer(address(held) & ~std::uintptr_t{0xffff'ffff}, kType, two_digits, last);  // a list of free ones
    integer(0x7f33'0000'3000, kType, two_digits, freed);
    integer(1, kType, three, larger);
    integer(1, kType, negative, minus);
    integer(1, kOther, two_digits, other);
    integers_ = {kType, has_tag, true};
    ASSERT_TRUE(judge());
    EXPECT_EQ(of(held), Standing::reachable);
    for (const auto* one : {freed, last, larger, minus, other}) EXPECT_EQ(of(one), Standing::lost);
    integers_.only_live = false;
    ASSERT_TRUE(judge());
    EXPECT_EQ(of(freed), Standing::reachable) << "the interpreter is gone";
  }
}

TEST_F(JudgeTest, OfAStackInABlockOnlyWhatIsARootCounts) {
  std::uintptr_t *stack = block(4096), *live = block(), *dead = block();
  stack[10] = address(dead);
  root(stack);
  root(live);  // as the part that is in use would have it
  in_use_ = {address(stack) + 2048};
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(stack), Standing::reachable);
  EXPECT_EQ(of(live), Standing::reachable);
  EXPECT_EQ(of(dead), Standing::lost);
}

TEST_F(JudgeTest, FreedBlocksLeadNowhere) {
  std::uintptr_t *freed = block(), *behind = block();
  root(freed);
  freed[3] = address(behind);
  test::put(freed);
  std::erase(blocks_, static_cast<void*>(freed));
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(behind), Standing::lost);
}

// More blocks wait at the same time than there is room for.
TEST_F(JudgeTest, NothingIsForgottenWhenManyWait) {
  constexpr std::size_t kMany = 100'000;
  std::uintptr_t* const table = block(kMany * sizeof(std::uintptr_t));
  std::vector<std::uintptr_t*> leaves;
  for (std::size_t i = 0; i < kMany; ++i) {
    std::uintptr_t* const one = block(16);
    table[i] = address(one);
    if (i % 1000 == 0) one[0] = address(leaves.emplace_back(block(32)));
  }
  root(table);
  ASSERT_TRUE(judge());
  for (void* one : blocks_) ASSERT_EQ(of(one), Standing::reachable);
}

TEST_F(JudgeTest, ALongListNeedsNoDepth) {
  std::uintptr_t* last = block(16);
  root(last);
  for (int i = 0; i < 200'000; ++i) {
    std::uintptr_t* const next = block(16);
    last[1] = address(next);
    last = next;
  }
  ASSERT_TRUE(judge());
  EXPECT_EQ(of(last), Standing::reachable);
}

TEST_F(JudgeTest, GivesUpWhenThereIsNoTime) {
  std::uintptr_t* const large = block(std::size_t{16} << 20);
  root(large);
  EXPECT_FALSE(judge([] { return true; }));
}

// --- Random graphs against a model

TEST_F(JudgeTest, HoldsAgainstAModel) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    roots_ = {0};
    for (void* one : blocks_) test::put(one);
    blocks_.clear();
    const std::size_t count = 1 + random() % 300;
    std::vector<std::uintptr_t*> nodes;
    std::vector<std::vector<std::size_t>> to(count), midst(count);
    for (std::size_t i = 0; i < count; ++i) {
      nodes.push_back(block(64 + 8 * (random() % 200)));
      nodes[i][0] = nodes[i][1] = ~std::uintptr_t{0};
    }
    std::vector<int> standing(count, 0);  // 0: not found, 1: reachable, 2: possibly
    std::vector<std::size_t> sure, unsure;
    for (std::size_t i = 0; i < count; ++i)
      for (unsigned at = 2; at < 8; ++at) {
        if (random() % 5) continue;
        const std::size_t other = random() % count;
        const bool is_midst = random() % 4 == 0;
        nodes[i][at] = address(nodes[other]) + (is_midst ? 8 * (3 + random() % 4) : 0);
        (is_midst ? midst : to)[i].push_back(other);
      }
    for (std::size_t i = 0; i < 1 + count / 20; ++i) {
      const std::size_t other = random() % count;
      const bool is_midst = random() % 4 == 0;
      root(address(nodes[other]) + (is_midst ? 32 : 0));
      (is_midst ? unsure : sure).push_back(other);
    }
    for (std::size_t i = 0; i < sure.size(); ++i) {
      if (standing[sure[i]]) continue;
      standing[sure[i]] = 1;
      for (const std::size_t other : to[sure[i]]) sure.push_back(other);
      for (const std::size_t other : midst[sure[i]]) unsure.push_back(other);
    }
    for (std::size_t i = 0; i < unsure.size(); ++i) {
      if (standing[unsure[i]]) continue;
      standing[unsure[i]] = 2;
      for (const auto* others : {&to[unsure[i]], &midst[unsure[i]]})
        for (const std::size_t other : *others) unsure.push_back(other);
    }
    std::vector<bool> led_to(count);  // by another lost block
    for (std::size_t i = 0; i < count; ++i)
      for (const auto* others : {&to[i], &midst[i]})
        for (const std::size_t other : *others)
          if (!standing[i] && other != i) led_to[other] = true;
    ASSERT_TRUE(judge());
    for (std::size_t i = 0; i < count; ++i) {
      const Standing found = of(nodes[i]);
      if (standing[i]) {
        ASSERT_EQ(found, standing[i] == 1 ? Standing::reachable : Standing::possibly_lost) << round << " " << i;
      } else if (!led_to[i]) {
        ASSERT_EQ(found, Standing::lost) << round << " " << i;
      } else {  // one block of a cycle that nothing else leads to is lost
        ASSERT_TRUE(found == Standing::lost || found == Standing::indirectly_lost) << round << " " << i;
      }
    }
    // Every block that is indirectly lost hangs on one that is lost.
    std::vector<std::size_t> heads;
    std::vector<bool> hangs(count);
    for (std::size_t i = 0; i < count; ++i)
      if (of(nodes[i]) == Standing::lost) heads.push_back(i);
    for (std::size_t i = 0; i < heads.size(); ++i)
      for (const auto* others : {&to[heads[i]], &midst[heads[i]]})
        for (const std::size_t other : *others)
          if (!standing[other] && !hangs[other]) hangs[other] = true, heads.push_back(other);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_TRUE(hangs[i] || of(nodes[i]) != Standing::indirectly_lost) << round << " " << i;
  }
}

}  // namespace
}  // namespace cistern::leaks
