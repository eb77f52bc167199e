// Frees of what is no live block: each is told from the others, whatever list a freed block waits in, and nothing
// changes. A block whose contents look like a free one's is freed like any other.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "pool/heap/blocks.hpp"
#include "pool/heap/medium.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"
#include "tests/support/worker.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::in_new_thread;
using test::Live;
using test::live_now;
using test::live_since;
using test::put;
using test::Worker;

void expect_refused(void* address, Freed as) {
  const Live before = live_now();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(put(address), as);
  EXPECT_FALSE(is_live(address));
  EXPECT_EQ(live_since(before), Live{});
}

// A double free is one for every thread.
void expect_double_free(void* block) {
  expect_refused(block, Freed::double_free);
  in_new_thread([&] { expect_refused(block, Freed::double_free); });
  const Whereabouts where = whereabouts(block);
  EXPECT_TRUE(where.in_pool && where.free);
  EXPECT_EQ(where.block, block);
}

// The lists are whole: what they give is distinct and not live elsewhere.
void expect_healthy(std::size_t bytes, const std::set<void*>& live = {}) {
  std::set<void*> blocks;
  for (unsigned i = 0; i < 3 * page_capacity(class_of(bytes)); ++i) {
    void* const block = get(bytes);
    ASSERT_TRUE(block && blocks.insert(block).second && !live.count(block));
  }
  for (void* block : blocks) ASSERT_EQ(put(block), Freed::yes);
}

TEST(HostMisuseTest, TwiceByTheOwner) {
  in_new_thread([] {
    for (const std::size_t bytes : {std::size_t{16}, std::size_t{100}, std::size_t{8192}, std::size_t{30000}}) {
      void* const kept = get(bytes);
      void* const block = get(bytes);
      ASSERT_EQ(put(block), Freed::yes);
      expect_double_free(block);
      expect_healthy(bytes, {kept});
      ASSERT_EQ(put(kept), Freed::yes);
    }
  });
}

TEST(HostMisuseTest, ABlockThatWaitsToBeHandedOut) {
  in_new_thread([] {
    std::vector<void*> before{get(64)};
    while (!this_heap()->lists[class_of(64)]) before.push_back(get(64));
    Block* const next = this_heap()->lists[class_of(64)];
    expect_double_free(next);
    // Freed, and back in the list through a refill.
    std::vector<void*> blocks;
    while (this_heap()->lists[class_of(64)]) blocks.push_back(get(64));
    for (void* one : blocks) ASSERT_EQ(put(one), Freed::yes);
    void* const last = get(64);
    for (void* one : blocks)
      if (one != last) expect_double_free(one);
    ASSERT_EQ(put(last), Freed::yes);
    for (void* one : before) ASSERT_EQ(put(one), Freed::yes);
  });
}

// A block that was never handed out is told from one that was freed.
TEST(HostMisuseTest, ABlockThatWasNeverGiven) {
  in_new_thread([] {
    const unsigned id = class_of(96);
    std::vector<void*> blocks{get(96)};
    while (!this_heap()->lists[id] || !this_heap()->lists[id]->next) blocks.push_back(get(96));
    Block* const next = this_heap()->lists[id];
    expect_refused(next, Freed::double_free);
    EXPECT_TRUE(whereabouts(next).free && whereabouts(next).never_given);
    EXPECT_TRUE(whereabouts(next->next).never_given);
    EXPECT_FALSE(whereabouts(blocks.back()).never_given);
    ASSERT_EQ(put(blocks.back()), Freed::yes);
    EXPECT_TRUE(whereabouts(blocks.back()).free);
    EXPECT_FALSE(whereabouts(blocks.back()).never_given);
    // Given and freed, and waiting in the list again.
    blocks.back() = get(96);
    while (this_heap()->lists[id]) blocks.push_back(get(96));
    for (void* block : blocks) ASSERT_EQ(put(block), Freed::yes);
    void* const last = get(96);
    for (void* block : blocks) EXPECT_FALSE(whereabouts(block).never_given);
    ASSERT_EQ(put(last), Freed::yes);
  });
}

TEST(HostMisuseTest, TwiceByAnotherThreadInItsBatch) {
  Worker owner, other;
  void* block = nullptr;
  owner.run([&] { block = get(64); });
  other.run([&] {
    put(get(16));  // it has a heap, so it gathers
    ASSERT_EQ(put(block), Freed::yes);
    expect_double_free(block);
  });
  owner.run([&] {
    expect_double_free(block);
    expect_healthy(64);
  });
}

TEST(HostMisuseTest, TwiceWhenTheBatchWasSent) {
  Worker owner, other;
  std::vector<void*> blocks(300);
  owner.run([&] {
    for (void*& block : blocks) block = get(64);
  });
  other.run([&] {
    put(get(16));
    for (void* block : blocks) ASSERT_EQ(put(block), Freed::yes);
    for (void* block : {blocks[0], blocks[100], blocks[299]}) expect_double_free(block);
  });
  owner.run([&] {
    EXPECT_NE(this_heap()->inbox.load(), 0u);
    for (void* block : {blocks[0], blocks[100], blocks[299]}) expect_double_free(block);
    read_inbox(*this_heap());
    for (void* block : {blocks[0], blocks[100], blocks[299]}) expect_double_free(block);
    expect_healthy(64);
  });
}

TEST(HostMisuseTest, TwiceWhenTheOwnerHasEnded) {
  std::vector<void*> blocks(50);
  in_new_thread([&] {
    for (void*& block : blocks) block = get(2000);
    for (int i = 0; i < 10; ++i) ASSERT_EQ(put(blocks[i]), Freed::yes);
  });
  for (int i = 0; i < 10; ++i) expect_double_free(blocks[i]);
  in_new_thread([&] {  // by a thread without a heap: sent immediately
    for (int i = 10; i < 20; ++i) ASSERT_EQ(put(blocks[i]), Freed::yes);
  });
  for (int i = 10; i < 20; ++i) expect_double_free(blocks[i]);
  in_new_thread([&] {
    void* const adopted = get(2000);
    for (int i = 0; i < 20; ++i)
      if (blocks[i] != adopted) expect_double_free(blocks[i]);
    for (int i = 20; i < 50; ++i) ASSERT_EQ(put(blocks[i]), Freed::yes);
    ASSERT_EQ(put(adopted), Freed::yes);
  });
}

TEST(HostMisuseTest, InsideABlock) {
  in_new_thread([] {
    for (const std::size_t bytes : {std::size_t{48}, std::size_t{4096}, std::size_t{20000}}) {
      auto* const block = static_cast<char*>(get(bytes));
      for (const std::size_t offset : {std::size_t{1}, std::size_t{8}, std::size_t{16}, bytes / 2 & ~std::size_t{15}}) {
        expect_refused(block + offset, Freed::invalid);
        const Whereabouts where = whereabouts(block + offset);
        EXPECT_TRUE(where.in_pool && !where.free);
        EXPECT_EQ(where.block, block);
        EXPECT_EQ(where.block_bytes, usable_bytes(block));
      }
      EXPECT_TRUE(is_live(block));
      EXPECT_EQ(put(block), Freed::yes);
    }
  });
}

TEST(HostMisuseTest, WhatNeverWasABlock) {
  in_new_thread([] {
    for (const std::size_t bytes : {std::size_t{112}, std::size_t{1280}, std::size_t{24576}}) {
      const unsigned id = class_of(bytes);
      std::vector<void*> blocks{get(bytes)};
      const auto page_of_last = [&]() -> const Page& { return *spot_of(blocks.back()).page; };
      const auto made = [&] { return is_medium(id) ? fetched_ever(page_of_last()) : unsigned{page_of_last().carved}; };
      while (made() == page_capacity(id)) blocks.push_back(get(bytes));
      const Page& page = page_of_last();
      char* const never = page_memory(&page) + made() * class_bytes(id);
      expect_refused(never, Freed::invalid);
      const Whereabouts where = whereabouts(never);
      EXPECT_TRUE(where.in_pool && where.free);
      EXPECT_EQ(where.block, nullptr);
      // Behind the last block a page can hold.
      char* const end = page_memory(&page) + page_slices(id) * kSliceBytes;
      expect_refused(end - 1, Freed::invalid);
      expect_refused(end - 16, Freed::invalid);
      for (void* block : blocks) EXPECT_EQ(put(block), Freed::yes);
    }
  });
}

TEST(HostMisuseTest, LargeBlocks) {
  constexpr std::size_t kBytes = 300'000;
  auto* const block = static_cast<char*>(get(kBytes));
  for (const std::size_t offset : {std::size_t{16}, std::size_t{4096}, kSliceBytes, 2 * kSliceBytes + 16, kBytes - 1}) {
    expect_refused(block + offset, Freed::invalid);
    EXPECT_EQ(usable_bytes(block + offset), 0u);
    const Whereabouts where = whereabouts(block + offset);
    EXPECT_TRUE(where.in_pool && !where.free) << offset;
    EXPECT_EQ(where.block, block);
    EXPECT_EQ(where.block_bytes, usable_bytes(block));
  }
  EXPECT_EQ(put(block), Freed::yes);
  expect_refused(block, Freed::invalid);
  EXPECT_TRUE(whereabouts(block).in_pool && whereabouts(block).free);
  EXPECT_EQ(whereabouts(block).block, nullptr);
}

TEST(HostMisuseTest, ForeignAddresses) {
  static int in_data;
  int on_stack = 0;
  void* const of_libc = std::malloc(100);
  for (void* address :
       {static_cast<void*>(nullptr), static_cast<void*>(&in_data), static_cast<void*>(&on_stack), of_libc,
        reinterpret_cast<void*>(16), reinterpret_cast<void*>(UINTPTR_MAX), reinterpret_cast<void*>(UINTPTR_MAX - 15),
        reinterpret_cast<void*>(std::uintptr_t{1} << 63), static_cast<void*>(slice_memory(region_end())),
        static_cast<void*>(slice_memory(region_begin()) - 16),
        static_cast<void*>(slice_memory(the_pool.window.slice_limit))}) {
    expect_refused(address, Freed::foreign);
    EXPECT_EQ(usable_bytes(address), 0u);
    const Whereabouts where = whereabouts(address);
    EXPECT_FALSE(where.in_pool || where.free || where.block);
  }
  std::free(of_libc);
}

TEST(HostMisuseTest, BlocksThatLookFreeAreFreedAllTheSame) {
  const Live before = live_now();
  in_new_thread([] {
    for (const std::size_t bytes : {std::size_t{32}, std::size_t{1024}, std::size_t{16384}}) {
      void* const freed = get(bytes);
      void* const copy = get(bytes);
      void* const sent = get(bytes);
      ASSERT_EQ(put(freed), Freed::yes);
      std::memcpy(copy, freed, 16);
      std::memcpy(sent, freed, 16);
      EXPECT_TRUE(is_live(copy));
      EXPECT_EQ(put(copy), Freed::yes);
      in_new_thread([&] { EXPECT_EQ(put(sent), Freed::yes); });
      for (void* block : {freed, copy, sent}) EXPECT_EQ(put(block), Freed::double_free);
      expect_healthy(bytes);
    }
  });
  EXPECT_EQ(live_since(before), Live{});
}

TEST(HostMisuseTest, HandedOutAgainItIsLive) {
  in_new_thread([] {
    void* const block = get(200);
    ASSERT_EQ(put(block), Freed::yes);
    std::vector<void*> blocks;
    do blocks.push_back(get(200));
    while (blocks.back() != block && blocks.size() < 1000);
    ASSERT_EQ(blocks.back(), block);
    EXPECT_TRUE(is_live(block) && !whereabouts(block).free);
    for (void* one : blocks) EXPECT_EQ(put(one), Freed::yes);
  });
}

}  // namespace
}  // namespace cistern::host_pool
