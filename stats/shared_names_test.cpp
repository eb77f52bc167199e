// Names that one process of a family has found are known to the others, and a damaged record harms no process.
#include "stats/shared_names.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace cistern {
namespace {

const Vector<NamedFrame> kInlined = {{"inner", "a.c", 3, false, true}, {"outer", "", 0, true, false}};

void expect_equal(const std::optional<Vector<NamedFrame>>& seen, const Vector<NamedFrame>& expected) {
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ((*seen)[i].function, expected[i].function);
    EXPECT_EQ((*seen)[i].file, expected[i].file);
    EXPECT_EQ((*seen)[i].line, expected[i].line);
    EXPECT_EQ((*seen)[i].is_ours, expected[i].is_ours);
  }
}

template <class Work>
void in_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SharedNames, AreKnownToParentAndSiblings) {
  prepare_shared_names();
  const NameKey key{0x1234, hash_of_module(0x1000, "/lib/a.so", "0a0b")}, none{0x1238, key.module};
  in_child([&] {
    share_names(key, kInlined);
    share_names(none, {});
  });
  expect_equal(shared_names(key), kInlined);
  expect_equal(shared_names(none), {});
  in_child([&] { expect_equal(shared_names(key), kInlined); });
}

TEST(SharedNames, BelongToTheirModule) {
  prepare_shared_names();
  const NameKey key{0x5000, hash_of_module(0x5000, "/lib/b.so", "")};
  share_names(key, kInlined);
  for (const std::uint64_t other : {hash_of_module(0x6000, "/lib/b.so", ""), hash_of_module(0x5000, "/lib/c.so", ""),
                                    hash_of_module(0x5000, "/lib/b.so", "0a")})
    EXPECT_FALSE(shared_names({key.address, other}));
  EXPECT_FALSE(shared_names({key.address + 1, key.module}));
}

TEST(SharedNames, TooLongOnesAreNotShared) {
  prepare_shared_names();
  const NameKey key{0x7000, 1};
  share_names(key, {{String(100'000, 'x'), "", 1, false, false}});
  EXPECT_FALSE(shared_names(key));
}

// Many more than there is room for: the first stay.
TEST(SharedNames, AFullTableTakesNoMore) {
  prepare_shared_names();
  const Vector<NamedFrame> long_name = {{String(1000, 'x'), "file.c", 7, false, false}};
  for (std::uint64_t i = 0; i < 5000; ++i) share_names({i, 2}, long_name);
  unsigned known = 0;
  for (std::uint64_t i = 0; i < 5000; ++i)
    if (const auto seen = shared_names({i, 2})) expect_equal(seen, long_name), ++known;
  EXPECT_GT(known, 500u);
  EXPECT_LT(known, 1100u);
}

// Another process may have written anything there.
TEST(SharedNames, WhatIsNoRecordHarmsNobody) {
  prepare_shared_names();
  const SharedNamesPlace place = shared_names_place();
  ASSERT_GT(place.bytes, 0u);
  in_child([&] {
    for (const int byte : {0xff, 0x01, 0x7f, 0x10}) {
      std::memset(reinterpret_cast<void*>(place.first), byte, place.bytes);
      for (std::uint64_t i = 0; i < 100; ++i) {
        shared_names({i, 3});
        share_names({i, 3}, kInlined);
      }
      shared_names(
          {0x0101010101010101u * static_cast<unsigned>(byte), 0x0101010101010101u * static_cast<unsigned>(byte)});
    }
  });
}

}  // namespace
}  // namespace cistern
