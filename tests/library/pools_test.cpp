// Pools of the library: limits, figures, misuse, races and forks, over every kind. CUDA is the simulated driver.
#include <cistern/cistern.h>
#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/library/captured.hpp"
#include "tests/library/kinds.hpp"
#include "tests/simcuda/simcuda.h"

namespace {

class Pools : public PoolTest {};

TEST_P(Pools, CountWhatIsTheirs) {
  cistern_pool *const one = make(settings("one")), *const other = make(settings("other"));
  void *a = nullptr, *b = nullptr, *c = nullptr;
  ASSERT_EQ(cistern_pool_allocate(one, kMiB, 0, &a), CISTERN_OK);
  ASSERT_EQ(cistern_pool_allocate(one, 2 * kMiB, 0, &b), CISTERN_OK);
  ASSERT_EQ(cistern_pool_allocate(other, 5000, 0, &c), CISTERN_OK);
  EXPECT_EQ(cistern_pool_deallocate(one, a, nullptr), CISTERN_OK);
  cistern_pool_statistics of = figures(one);
  EXPECT_EQ(of.allocations, 2u);
  EXPECT_EQ(of.frees, 1u);
  EXPECT_EQ(of.failed, 0u);
  EXPECT_EQ(of.live_blocks, 1u);
  EXPECT_EQ(of.live_bytes, 2 * kMiB);
  EXPECT_EQ(of.peak_bytes, 3 * kMiB);
  EXPECT_EQ(of.allocated_bytes, 3 * kMiB);
  EXPECT_EQ(figures(other).live_bytes, 5000u);
  EXPECT_EQ(cistern_pool_destroy(one), CISTERN_BUSY);
  std::map<void*, std::size_t> live;
  const auto add = [](void* block, std::size_t bytes, void* user) {
    (*static_cast<std::map<void*, std::size_t>*>(user))[block] = bytes;
    return 0;
  };
  EXPECT_EQ(cistern_pool_visit(one, add, &live), CISTERN_OK);
  EXPECT_EQ(live, (std::map<void*, std::size_t>{{b, 2 * kMiB}}));
  EXPECT_EQ(cistern_pool_deallocate(one, b, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_deallocate(other, c, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(one), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(other), CISTERN_OK);
}

TEST_P(Pools, AlignBlocks) {
  if (GetParam() == CISTERN_OPENCL) {
    void* block = nullptr;
    cistern_pool* const pool = make(settings("aligned"));
    EXPECT_EQ(cistern_pool_allocate(pool, 100, 64, &block), CISTERN_INVALID);
    EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
    return;
  }
  cistern_pool* const pool = make(settings("aligned"));
  std::vector<void*> blocks;
  for (const std::size_t alignment : {1, 64, 256, 512, 4096, 65536, 1 << 20})
    for (const std::size_t bytes : {1, 1000, 70000}) {
      void* block = nullptr;
      ASSERT_EQ(cistern_pool_allocate(pool, bytes, alignment, &block), CISTERN_OK) << alignment;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0u) << alignment;
      if (GetParam() == CISTERN_HOST || GetParam() == CISTERN_PINNED) memset(block, 0x5a, bytes);
      blocks.push_back(block);
    }
  for (void* block : blocks) EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
  EXPECT_EQ(figures(pool).live_bytes, 0u);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_P(Pools, KeepTheirLimitAndAskForRoom) {
  struct Cache {
    void* block;
    int asked;
  } cache{nullptr, 0};
  cistern_pool_settings of = settings("limited", 3 * kMiB);
  of.user = &cache;
  of.out_of_memory = [](cistern_pool* pool, std::size_t, void* user) {
    auto& cached = *static_cast<Cache*>(user);
    ++cached.asked;
    if (!cached.block) return 0;
    EXPECT_EQ(cistern_pool_deallocate(pool, std::exchange(cached.block, nullptr), nullptr), CISTERN_OK);
    return 1;
  };
  cistern_pool* const pool = make(of);
  void *kept = nullptr, *none = pool;
  ASSERT_EQ(cistern_pool_allocate(pool, 2 * kMiB, 0, &cache.block), CISTERN_OK);
  ASSERT_EQ(cistern_pool_allocate(pool, 2 * kMiB, 0, &kept), CISTERN_OK);
  EXPECT_EQ(cache.asked, 1);
  EXPECT_EQ(cistern_pool_allocate(pool, kMiB + 1, 0, &none), CISTERN_LIMIT);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(cistern_native_error(), 0);
  EXPECT_EQ(cache.asked, 2);
  EXPECT_EQ(figures(pool).failed, 1u);
  EXPECT_EQ(figures(pool).peak_bytes, 2 * kMiB);
  EXPECT_EQ(figures(pool).bytes_max, 3 * kMiB);
  EXPECT_EQ(cistern_pool_deallocate(pool, kept, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_P(Pools, TellTheProgramOfEachBlock) {
  struct Told {
    std::uint64_t births = 0, deaths = 0;
  } told;
  cistern_pool_settings of = settings("told");
  of.user = &told;
  of.allocated = [](cistern_pool*, void* block, std::size_t bytes, void* user) {
    static_cast<Told*>(user)->births += block ? bytes : 0;
  };
  of.deallocated = [](cistern_pool*, void* block, std::size_t bytes, void* user) {
    static_cast<Told*>(user)->deaths += block ? bytes : 0;
  };
  cistern_pool* const pool = make(of);
  void* block = nullptr;
  ASSERT_EQ(cistern_pool_allocate(pool, 300, 0, &block), CISTERN_OK);
  EXPECT_EQ(told.births, 300u);
  EXPECT_EQ(told.deaths, 0u);
  EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
  EXPECT_EQ(told.deaths, 300u);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_P(Pools, AnswerMisuseWithAValueAndALine) {
  cistern_pool *const one = make(settings("one")), *const other = make(settings("other"));
  void *block = nullptr, *freed = nullptr;
  ASSERT_EQ(cistern_pool_allocate(one, 1000, 0, &block), CISTERN_OK);
  ASSERT_EQ(cistern_pool_allocate(one, 1000, 0, &freed), CISTERN_OK);
  ASSERT_EQ(cistern_pool_deallocate(one, freed, nullptr), CISTERN_OK);
  int local = 0;
  const std::string deallocate = "cistern: cistern_pool_deallocate(", kind = " (" + std::string(kind_name()) + "); ";
  Captured said;
  EXPECT_EQ(cistern_pool_deallocate(other, block, nullptr), CISTERN_INVALID);
  EXPECT_EQ(said.text(), deallocate + hex(block) + "): a live block of pool \"one\"" + kind + "refused\n");
  Captured said_then;
  EXPECT_EQ(cistern_pool_deallocate(one, freed, nullptr), CISTERN_INVALID);
  EXPECT_EQ(said_then.text(), deallocate + hex(freed) + "): no live block of pool \"one\"" + kind + "refused\n");
  Captured said_at_last;
  EXPECT_EQ(cistern_pool_deallocate(one, &local, nullptr), CISTERN_INVALID);
  EXPECT_EQ(said_at_last.text(), deallocate + hex(&local) + "): no live block of pool \"one\"" + kind + "refused\n");
  Captured said_of_all;
  if (GetParam() == CISTERN_HOST) EXPECT_EQ(cistern_deallocate(block), CISTERN_INVALID);
  if (GetParam() == CISTERN_DEVICE)
    EXPECT_EQ(cistern_cuda_deallocate(reinterpret_cast<std::uintptr_t>(block)), CISTERN_INVALID);
  if (GetParam() == CISTERN_OPENCL)
    EXPECT_EQ(cistern_opencl_deallocate(static_cast<_cl_mem*>(block), nullptr), CISTERN_INVALID);
  const std::string refused = said_of_all.text();
  if (GetParam() != CISTERN_PINNED && GetParam() != CISTERN_MANAGED)
    EXPECT_NE(refused.find("): a live block of pool \"one\"" + kind + "refused\n"), std::string::npos) << refused;
  EXPECT_EQ(figures(one).live_blocks, 1u);
  EXPECT_EQ(cistern_pool_deallocate(one, block, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(one), CISTERN_OK);
  Captured captured5;
  EXPECT_EQ(cistern_pool_allocate(one, 1000, 0, &block), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_destroy(one), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_get_statistics(nullptr, nullptr), CISTERN_INVALID);
  const std::string after = "): no pool, or destroyed already; refused\n";
  EXPECT_EQ(captured5.text(), "cistern: cistern_pool_allocate(" + hex(one) + after + "cistern: cistern_pool_destroy(" +
                                  hex(one) + after + "cistern: cistern_pool_get_statistics(0x0" + after);
  EXPECT_EQ(cistern_pool_destroy(other), CISTERN_OK);
}

TEST_P(Pools, RefuseWrongArguments) {
  cistern_pool* const pool = make(settings("arguments"));
  void* block = pool;
  EXPECT_EQ(cistern_pool_allocate(pool, 0, 0, &block), CISTERN_INVALID);
  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(cistern_pool_allocate(pool, 100, 3, &block), CISTERN_INVALID);
  EXPECT_NE(cistern_pool_allocate(pool, SIZE_MAX - 5, 0, &block), CISTERN_OK);
  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(cistern_pool_allocate(pool, 100, 0, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_deallocate(pool, nullptr, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_visit(pool, nullptr, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  cistern_pool_settings of = settings("settings");
  cistern_pool* none = pool;
  of.struct_bytes = 4;
  EXPECT_EQ(cistern_pool_create(&of, &none), CISTERN_INVALID);
  EXPECT_EQ(none, nullptr);
  of = settings("settings");
  of.kind = static_cast<cistern_kind>(17);
  EXPECT_EQ(cistern_pool_create(&of, &none), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_create(nullptr, &none), CISTERN_INVALID);
}

TEST_P(Pools, ThreadsShareThem) {
  if (kEndsEarly && GetParam() == CISTERN_HOST) GTEST_SKIP() << kGone;
  cistern_pool* const pool = make(settings("shared", 64 * kMiB));
  void* holds = nullptr;
  ASSERT_EQ(cistern_pool_allocate(pool, 1, 0, &holds), CISTERN_OK);
  std::atomic<std::uint64_t> given{0};
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < 4; ++id)
    threads.emplace_back([&, id] {
      if (GetParam() != CISTERN_HOST && GetParam() != CISTERN_OPENCL) make_cuda_current();
      std::mt19937 random(id);
      std::vector<void*> mine;
      for (int step = 0; step < 2000; ++step) {
        if (mine.size() < 20 && random() % 2) {
          void* block = nullptr;
          demand(cistern_pool_allocate(pool, 1 + random() % 100000, 0, &block));
          mine.push_back(block);
          ++given;
        } else if (!mine.empty()) {
          std::swap(mine[random() % mine.size()], mine.back());
          demand(cistern_pool_deallocate(pool, mine.back(), nullptr));
          mine.pop_back();
        }
        if (step % 500 == 0) cistern_pool_destroy(pool);  // busy
      }
      for (void* block : mine) demand(cistern_pool_deallocate(pool, block, nullptr));
    });
  for (std::thread& thread : threads) thread.join();
  const cistern_pool_statistics of = figures(pool);
  EXPECT_EQ(of.allocations, given + 1);
  EXPECT_EQ(of.frees, given.load());
  EXPECT_EQ(of.live_bytes, 1u);
  EXPECT_EQ(cistern_pool_deallocate(pool, holds, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// Whoever is told that his block is no live one has changed nothing: not for those either who got its memory since.
TEST_P(Pools, LeaveOthersAloneWhenABlockIsGivenBackTwice) {
  if (kEndsEarly && GetParam() == CISTERN_HOST) GTEST_SKIP() << kGone;
  cistern_pool* const pool = make(settings("raced"));
  std::atomic<void*> offered{nullptr};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> given{0}, taken_back{0};
  const auto enter = [] {
    if (GetParam() != CISTERN_HOST && GetParam() != CISTERN_OPENCL) make_cuda_current();
  };
  Captured said;
  std::vector<std::thread> threads;
  for (int id = 0; id < 2; ++id)
    threads.emplace_back([&] {
      enter();
      while (!stop)
        if (void* const block = offered.load(); block && !cistern_pool_deallocate(pool, block, nullptr)) ++taken_back;
    });
  for (int id = 0; id < 2; ++id)
    threads.emplace_back([&, id] {
      enter();
      for (int step = 0; step < 3000; ++step) {
        void *block = nullptr, *kept = nullptr;
        if (cistern_pool_allocate(pool, 2000, 0, &block) || cistern_pool_allocate(pool, 2000, 0, &kept)) std::abort();
        given += 2;
        if (id == 0) offered = block;
        if (!cistern_pool_deallocate(pool, block, nullptr)) ++taken_back;
        if (!cistern_pool_deallocate(pool, kept, nullptr)) ++taken_back;
      }
    });
  threads[2].join();
  threads[3].join();
  stop = true;
  threads[0].join();
  threads[1].join();
  said.text();
  EXPECT_EQ(given, taken_back) << "each block was given back once";
  EXPECT_EQ(figures(pool).live_blocks, 0u);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Pools, every_kind(), name_of_kind);

// Blocks go on in a forked child, whose counts begin anew.
TEST(PoolsOfHostMemory, LiveInForkedChildrenBesideBusyThreads) {
  if (kEndsEarly) GTEST_SKIP() << kGone;
  cistern_pool_settings of{};
  of.struct_bytes = sizeof of;
  of.kind = CISTERN_HOST;
  cistern_pool* pool = nullptr;
  ASSERT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      void* block = nullptr;
      if (cistern_pool_allocate(pool, 50, 0, &block) || cistern_pool_deallocate(pool, block, nullptr)) std::abort();
    }
  });
  void* block = nullptr;
  ASSERT_EQ(cistern_pool_allocate(pool, 100, 0, &block), CISTERN_OK);
  for (int round = 0; round < 50; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (!child) {
      void* another = nullptr;
      auto seen = cistern::sized<cistern_pool_statistics>();
      const bool ok = !cistern_pool_allocate(pool, 10, 0, &another) && !cistern_pool_deallocate(pool, block, nullptr) &&
                      !cistern_pool_get_statistics(pool, &seen) && seen.allocations == 1 && seen.live_blocks <= 2;
      _exit(ok ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  stop = true;
  busy.join();
  EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST(PoolsOfDeviceMemory, PassTheDriversErrorsOn) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  cistern_pool_settings of{};
  of.struct_bytes = sizeof of;
  of.kind = CISTERN_DEVICE;
  int asked = 0;
  of.user = &asked;
  of.out_of_memory = [](cistern_pool*, std::size_t, void* user) { return ++*static_cast<int*>(user) < 3 ? 1 : 0; };
  for (const cistern_pool_memory memory : {CISTERN_WHOLE_BLOCKS, CISTERN_SEGMENTS}) {
    cistern_pool* pool = nullptr;
    of.memory = memory;
    asked = 0;
    ASSERT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
    void* block = nullptr;
    EXPECT_EQ(cistern_pool_allocate(pool, std::size_t{1} << 45, 0, &block), CISTERN_NO_MEMORY);
    EXPECT_EQ(cistern_native_error(), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(asked, 3);
    EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  }
}

// Whatever the driver refuses, the account is that of the blocks which are there, and the error is the driver's.
TEST(PoolsOfDeviceMemory, StayRightWhenEachCallFailsInTurn) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  cistern_pool_settings of{};
  of.struct_bytes = sizeof of;
  struct Way {
    cistern_kind kind;
    cistern_pool_memory memory;
  };
  for (const Way way : {Way{CISTERN_DEVICE, CISTERN_WHOLE_BLOCKS}, Way{CISTERN_PINNED, CISTERN_WHOLE_BLOCKS},
                        Way{CISTERN_MANAGED, CISTERN_WHOLE_BLOCKS}, Way{CISTERN_DEVICE, CISTERN_SEGMENTS},
                        Way{CISTERN_PINNED, CISTERN_SEGMENTS}}) {
    of.kind = way.kind;
    of.memory = way.memory;
    cistern_pool* pool = nullptr;
    ASSERT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
    unsigned failed = 0;
    for (int every = 1; every <= 40; ++every) {
      std::vector<void*> blocks;
      simcuda_set_value("fail_every", every);
      for (int i = 0; i < 5; ++i) {
        void* block = nullptr;
        const cistern_status status = cistern_pool_allocate(pool, (i + 1 + every) * 100'000, 0, &block);
        if (status == CISTERN_OK) {
          blocks.push_back(block);
          continue;
        }
        ++failed;
        EXPECT_TRUE(status == CISTERN_NO_MEMORY || status == CISTERN_DRIVER) << status;
        // Where the call fails that asks for the context, there is none to take a segment in.
        if (way.memory != CISTERN_SEGMENTS || cistern_native_error() != CUDA_ERROR_INVALID_CONTEXT)
          EXPECT_EQ(cistern_native_error(),
                    status == CISTERN_NO_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
        EXPECT_EQ(block, nullptr);
      }
      auto seen = cistern::sized<cistern_pool_statistics>();
      cistern_pool_get_statistics(pool, &seen);
      EXPECT_EQ(seen.live_blocks, blocks.size());
      for (void* block : blocks) {
        if (cistern_pool_deallocate(pool, block, nullptr) == CISTERN_OK) continue;
        ++failed;
        EXPECT_EQ(cistern_native_error(), CUDA_ERROR_UNKNOWN);
        simcuda_set_value("fail_every", 0);
        EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK) << "it is alive still";
        simcuda_set_value("fail_every", every);
      }
    }
    simcuda_set_value("fail_every", 0);
    EXPECT_GE(failed, 5u);
    EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
    cistern_trim(way.kind, 0, nullptr);
  }
}

}  // namespace
