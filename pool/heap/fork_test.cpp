// A forked child of a process with threads: it has the blocks of all threads, frees them, starts threads of its own,
// and counts right. A live block stays its owner's, even if the other threads were in the middle of a call.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "pool/base/page_size.hpp"
#include "tests/support/child.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"
#include "tests/support/worker.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::in_child;
using test::in_new_thread;
using test::Live;
using test::live_now;
using test::live_since;
using test::put;
using test::Worker;

class HostForkTest : public testing::Test {
 protected:
  void SetUp() override {
    if (CISTERN_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer allows no new threads in a child of a process with threads";
  }
};

struct Held {
  void* block;
  std::size_t bytes;
  std::uint64_t tag;
};

std::vector<Held> hold(std::size_t count, std::uint64_t tag) {
  static constexpr std::size_t kSizes[] = {16, 64, 200, 1500, 9000, 30000};
  std::vector<Held> held;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bytes = kSizes[i % std::size(kSizes)];
    held.push_back({get(bytes), bytes, tag + i});
    test::fill(held.back().block, bytes, held.back().tag);
  }
  return held;
}

// Threads that make, fill and free blocks of many sizes: what is handed out twice gets spoiled.
void churn(int threads, int rounds) {
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i)
    running.emplace_back([=] {
      for (int round = 0; round < rounds; ++round) {
        std::vector<Held> held = hold(600, static_cast<std::uint64_t>(i * 1000 + round) << 20);
        for (const Held& one : held) ASSERT_TRUE(test::is_filled(one.block, one.bytes, one.tag));
        for (const Held& one : held) ASSERT_EQ(put(one.block), Freed::yes);
      }
    });
  for (std::thread& thread : running) thread.join();
}

TEST_F(HostForkTest, TheChildFreesWhatAllThreadsHadAndCountsRight) {
  const Live before = live_now();
  Worker one, other;
  std::vector<Held> held, of_main = hold(300, 0), of_ended;
  one.run([&] { held = hold(900, 1 << 10); });
  other.run([&] {
    // Some in its lists, some in batches on their way to the first.
    const std::vector<Held> more = hold(900, 1 << 20);
    for (std::size_t i = 0; i < more.size(); i += 3) {
      ASSERT_EQ(put(more[i].block), Freed::yes);
      held.push_back(more[i + 1]);
      held.push_back(more[i + 2]);
    }
    for (int i = 0; i < 37; ++i) {
      ASSERT_EQ(put(held.front().block), Freed::yes);
      held.erase(held.begin());
    }
  });
  in_new_thread([&] { of_ended = hold(500, 1 << 24); });
  held.insert(held.end(), of_main.begin(), of_main.end());
  held.insert(held.end(), of_ended.begin(), of_ended.end());
  const Live live = live_since(before);
  for (const bool threads_first : {false, true})
    in_child([&, threads_first] {
      EXPECT_EQ(live_since(before), live);
      restart_account();
      EXPECT_EQ(account().allocations(), 0u);
      EXPECT_EQ(account().inherited_blocks, account().live_blocks());
      if (threads_first) churn(3, 3);
      EXPECT_EQ(live_since(before), live);
      for (const Held& block : held) ASSERT_TRUE(test::is_filled(block.block, block.bytes, block.tag));
      for (std::size_t i = 0; i < held.size(); ++i) {
        if (i % 2) {
          ASSERT_EQ(put(held[i].block), Freed::yes);
        } else {
          ASSERT_TRUE(is_live(held[i].block));
        }
      }
      for (std::size_t i = 1; i < held.size(); i += 2) ASSERT_FALSE(is_live(held[i].block));
      if (!threads_first) churn(3, 3);
      std::thread([&] {
        for (std::size_t i = 0; i < held.size(); i += 2) ASSERT_EQ(put(held[i].block), Freed::yes);
      }).join();
      EXPECT_EQ(live_since(before), Live{});
      EXPECT_EQ(test::region_fault(), "");
    });
  EXPECT_EQ(live_since(before), live);  // nothing of it is the parent's affair
  other.run([&] {
    for (const Held& block : held) ASSERT_EQ(put(block.block), Freed::yes);
  });
  EXPECT_EQ(live_since(before), Live{});
}

TEST_F(HostForkTest, AChildsThreadMayFreeBeforeItAllocates) {
  const Live before = live_now();
  std::vector<Held> held;
  auto worker = std::make_unique<Worker>();
  worker->run([&] { held = hold(3000, 0); });
  in_child([&] {
    // At the stacks of the parent's threads, if the C library has its way.
    std::array<std::thread, 4> threads;
    for (std::size_t t = 0; t < threads.size(); ++t)
      threads[t] = std::thread([&, t] {
        if (t % 2) churn(1, 2);
        for (std::size_t i = t; i < held.size(); i += threads.size()) {
          ASSERT_TRUE(test::is_filled(held[i].block, held[i].bytes, held[i].tag));
          ASSERT_EQ(put(held[i].block), Freed::yes);
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(live_since(before), Live{});
    churn(3, 3);
    EXPECT_EQ(live_since(before), Live{});
    EXPECT_EQ(test::region_fault(), "");
  });
  worker->run([&] {
    for (const Held& block : held) ASSERT_EQ(put(block.block), Freed::yes);
  });
}

TEST_F(HostForkTest, ChildrenOfChildren) {
  const Live before = live_now();
  Worker worker;
  std::vector<Held> held;
  worker.run([&] { held = hold(200, 0); });
  in_child([&] {
    Worker of_child;
    std::vector<Held> more;
    of_child.run([&] { more = hold(200, 77); });
    in_child([&] {
      churn(2, 2);
      for (const auto* blocks : {&held, &more})
        for (const Held& one : *blocks) {
          ASSERT_TRUE(test::is_filled(one.block, one.bytes, one.tag));
          ASSERT_EQ(put(one.block), Freed::yes);
        }
      EXPECT_EQ(live_since(before), Live{});
    });
    for (const auto* blocks : {&held, &more})
      for (const Held& one : *blocks) ASSERT_EQ(put(one.block), Freed::yes);
    EXPECT_EQ(live_since(before), Live{});
    of_child.end();
  });
  for (const Held& one : held) ASSERT_EQ(put(one.block), Freed::yes);
  EXPECT_EQ(live_since(before), Live{});
}

// --- Threads at work while the process forks
struct Slot {
  std::atomic<void*> block{nullptr};  // set when it is filled, cleared before it is freed
  std::atomic<std::size_t> bytes{0};
  std::atomic<std::uint64_t> tag{0};
};

TEST_F(HostForkTest, LiveBlocksAreSafeWhateverTheOtherThreadsWereDoing) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  constexpr int kThreads = 3, kForks = 25;
  const auto slots = std::make_unique<std::array<std::array<Slot, 300>, kThreads>>();
  std::atomic<bool> stop{false};
  std::vector<std::thread> running;
  for (int t = 0; t < kThreads; ++t)
    running.emplace_back([&, t] {
      std::mt19937 random(seed + static_cast<unsigned>(t));
      static constexpr std::size_t kSizes[] = {16, 48, 64, 256, 2000, 8192, 24000, 50000};
      std::uint64_t tag = static_cast<std::uint64_t>(t) << 32;
      while (!stop.load(std::memory_order_relaxed)) {
        if (random() % 3000 == 0) trim(0);
        // A slot of another thread now and then: a remote free.
        Slot& slot = (*slots)[static_cast<std::size_t>(random() % 8 ? t : (t + 1) % kThreads)][random() % 300];
        if (void* const block = slot.block.exchange(nullptr, std::memory_order_acq_rel)) {
          put(block);
        } else if (&slot >= &(*slots)[static_cast<std::size_t>(t)][0] &&
                   &slot <= &(*slots)[static_cast<std::size_t>(t)][299]) {
          const std::size_t bytes = kSizes[random() % std::size(kSizes)];
          void* const fresh = get(bytes);
          if (!fresh) continue;  // a thread that needs memory does not wait for a fork
          test::fill(fresh, bytes, ++tag);
          slot.bytes.store(bytes, std::memory_order_relaxed);
          slot.tag.store(tag, std::memory_order_relaxed);
          slot.block.store(fresh, std::memory_order_release);
        }
      }
    });
  for (int i = 0; i < kForks; ++i)
    in_child([&] {
      churn(2, 2);
      std::vector<Slot*> full;
      for (auto& of_thread : *slots)
        for (Slot& slot : of_thread)
          if (slot.block.load()) full.push_back(&slot);
      for (Slot* slot : full) {
        ASSERT_TRUE(is_live(slot->block.load()));
        ASSERT_TRUE(test::is_filled(slot->block.load(), slot->bytes.load(), slot->tag.load())) << slot->bytes.load();
      }
      for (Slot* slot : full) ASSERT_EQ(put(slot->block.load()), Freed::yes);
      churn(2, 2);
      ASSERT_EQ(test::region_fault(), "");
    });
  stop.store(true);
  for (std::thread& thread : running) thread.join();
  for (auto& of_thread : *slots)
    for (Slot& slot : of_thread)
      if (void* const block = slot.block.load()) put(block);
  EXPECT_EQ(test::region_fault(), "");
}

// A fork can cut a thread off that was about to refill its list: the chain is in the list and still in the page.
TEST_F(HostForkTest, AChainThatWasBeingMovedIsNotTwoChains) {
  Worker worker;
  std::vector<void*> blocks;
  worker.run([&] {
    put(get(16));
    while (blocks.size() < 40) blocks.push_back(get(64));
    while (this_heap()->lists[class_of(64)]) blocks.push_back(get(64));
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(put(blocks.back()), Freed::yes);
      blocks.pop_back();
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) test::fill(blocks[i], 64, i);
    Page& page = *page_at(this_heap()->classes[class_of(64)].current);
    ASSERT_TRUE(page.free_blocks);
    this_heap()->lists[class_of(64)] = page.free_blocks;
  });
  in_child([&] {
    churn(1, 4);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_TRUE(is_live(blocks[i]));
      ASSERT_TRUE(test::is_filled(blocks[i], 64, i));
    }
    std::set<void*> more;
    for (int i = 0; i < 5000; ++i) ASSERT_TRUE(more.insert(get(64)).second);
    for (void* block : blocks) ASSERT_FALSE(more.count(block));
  });
  worker.run([&] {
    this_heap()->lists[class_of(64)] = nullptr;
    for (void* block : blocks) ASSERT_EQ(put(block), Freed::yes);
  });
}

// Cut off between two steps of a malloc and of a free, a thread leaves numbers that its lists do not bear out. A count
// in the child is of the lists, and it stays the same when another thread of the child clears up.
TEST_F(HostForkTest, WhatAThreadWasAboutToDoIsNoAllocationOfTheChild) {
  Worker worker;
  std::vector<void*> blocks;
  constexpr unsigned kTaken = class_of(64), kGiven = class_of(96);
  worker.run([&] {
    for (int i = 0; i < 100; ++i) blocks.push_back(get(64));
    for (int i = 0; i < 100; ++i) blocks.push_back(get(96));
  });
  const std::uint64_t live = account().live_blocks();
  Block* pushed = nullptr;
  worker.run([&] {
    Heap& heap = *this_heap();
    ClassPages& own = heap.classes[kTaken];
    own.rest = std::exchange(heap.lists[kTaken], nullptr);
    for (const Block* at = own.rest; at; at = at->next) ++own.rest_count;
    ASSERT_GT(own.rest_count, 1u);
    --own.rest_count;  // the next step takes the block out of the rest
    pushed = static_cast<Block*>(blocks.back());
    blocks.pop_back();
    Page& page = *page_at(heap.classes[kGiven].current);
    ASSERT_NE(number_of_block(page, pushed), kNoBlock);
    pushed->mark = the_pool.window.free_mark;
    pushed->next = page.free_blocks;
    page.free_blocks = pushed;  // the next step counts it
  });
  in_child([&] {
    restart_account();
    const auto expect = [&](const char* when) {
      const Account now = account();
      EXPECT_EQ(now.allocations(), 0u) << when;
      EXPECT_EQ(now.live_blocks(), live - 1) << when;
      EXPECT_EQ(now.inherited_blocks, live - 1) << when;
    };
    expect("before another thread");
    std::thread([] { start_heap(); }).join();
    expect("after it");
  });
  worker.run([&] {
    Heap& heap = *this_heap();
    heap.lists[kTaken] = std::exchange(heap.classes[kTaken].rest, nullptr);
    heap.classes[kTaken].rest_count = 0;
    Page& page = *page_at(heap.classes[kGiven].current);
    page.free_blocks = pushed->next;
    pushed->mark = 0;
    ASSERT_EQ(put(pushed), Freed::yes);
    for (void* block : blocks) ASSERT_EQ(put(block), Freed::yes);
  });
}

// Heaps that were started by threads whose own had ended, in a process that forks.
TEST_F(HostForkTest, LateHeapsAndThreadsThatEndLateInTheChild) {
  static pthread_key_t key;
  struct Late {
    int rounds = 0;
    void* block = nullptr;
  };
  ASSERT_EQ(pthread_key_create(&key,
                               [](void* value) {
                                 Late& late = *static_cast<Late*>(value);
                                 if (++late.rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
                                   pthread_setspecific(key, value);
                                 } else {
                                   late.block = get(300);
                                 }
                               }),
            0);
  const auto end_late = [](Late& late) {
    put(get(40));
    pthread_setspecific(key, &late);
  };
  const Live before = live_now();
  std::array<Late, 3> lates;
  for (Late& late : lates) in_new_thread([&] { end_late(late); });
  in_child([&] {
    for (int round = 0; round < 3; ++round) {
      std::array<Late, 8> more;
      Worker busy;  // so that not all lie at one place
      busy.run([] { put(get(40)); });
      for (std::size_t i = 0; i < more.size(); i += 2) {
        std::thread one([&] { end_late(more[i]); }), other([&] { end_late(more[i + 1]); });
        one.join();
        other.join();
      }
      churn(3, 1);
      for (Late& late : more) ASSERT_EQ(put(late.block), Freed::yes);
    }
    for (Late& late : lates) ASSERT_EQ(put(late.block), Freed::yes);
    EXPECT_EQ(live_since(before), Live{});
  });
  for (Late& late : lates) ASSERT_EQ(put(late.block), Freed::yes);
  EXPECT_EQ(live_since(before), Live{});
  pthread_key_delete(key);
}

// The C library waits for locks of its own between the last handler before a fork and the fork. A thread that has one
// of them may allocate and free meanwhile. That must not wait for the fork, and nothing may be lost.
TEST_F(HostForkTest, NobodyWaitsForAForkToAllocateOrFree) {
  const Live before = live_now();
  Worker owner, other;
  std::vector<Held> held;
  owner.run([&] { held = hold(600, 1 << 10); });
  std::vector<void*> large;
  for (int i = 0; i < 20; ++i) large.push_back(get(100'000));
  std::atomic<int> refused{0};
  std::vector<void*> made;
  for (int round = 0; round < 3; ++round) {
    threads_before_fork();
    // With pages that it has, without, and with no heap at all; each would hang if it waited.
    const auto work = [&](std::size_t from) {
      for (std::size_t i = from; i < held.size(); i += 9) {
        if (!held[i].block) continue;
        EXPECT_EQ(put(held[i].block), Freed::yes);
        held[i].block = nullptr;
      }
      for (const std::size_t bytes : {16, 3000, 30000, 200'000})
        if (void* const block = get(bytes)) {
          made.push_back(block);
        } else {
          ++refused;
        }
    };
    owner.run([&] { work(static_cast<std::size_t>(round) * 3); });
    other.run([&] { work(static_cast<std::size_t>(round) * 3 + 1); });
    Worker late;
    late.run([&] {
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(put(large.back()), Freed::yes);
        large.pop_back();
      }
      if (!get(64)) ++refused;  // no heap, no lock: the C library's turn
    });
    EXPECT_EQ(usable_bytes(large.front()), (100'000 + page_bytes() - 1) / page_bytes() * page_bytes());
    threads_after_fork_in_parent();
  }
  EXPECT_GE(refused.load(), 3);
  EXPECT_EQ(test::region_fault(), "");
  for (const Held& one : held)
    if (one.block) put(one.block);
  for (void* const block : made) EXPECT_EQ(put(block), Freed::yes);
  for (void* const block : large) EXPECT_EQ(put(block), Freed::yes);
  owner.run([] { put(get(200'000)); });  // takes back what was set aside
  EXPECT_EQ(live_since(before), Live{});
  EXPECT_EQ(test::region_fault(), "");
}

// A handler that interrupted the holder of a lock may fork: the lock stays with the code that it interrupted.
TEST(Lock, AForkLeavesItToTheCodeThatAHandlerInterrupted) {
  Lock lock;
  lock.lock();
  lock.lock_for_fork();
  lock.unlock_after_fork();
  EXPECT_TRUE(lock.held_here());
  lock.unlock();
  EXPECT_FALSE(lock.held_here());
  EXPECT_EQ(locks_held, 0);
}

TEST(Lock, OnlyThoseWhoNeedNotDoNotWaitForAFork) {
  Lock lock;
  SpinLock spin;
  lock.lock_for_fork();
  spin.lock_for_fork();
  std::atomic<bool> waited{false};
  std::thread patient([&] {
    const Locked hold(lock);
    waited = true;
  });
  std::thread([&] {
    EXPECT_FALSE(lock.lock_unless_forking());
    EXPECT_FALSE(spin.lock_unless_forking());
    EXPECT_TRUE(lock.held_elsewhere());
    EXPECT_EQ(locks_held, 0);
  }).join();
  EXPECT_FALSE(waited.load());
  spin.unlock_after_fork();
  lock.unlock_after_fork();
  patient.join();
  EXPECT_TRUE(waited.load());
  EXPECT_TRUE(lock.lock_unless_forking());
  lock.unlock();
  EXPECT_EQ(locks_held, 0);
}

#ifdef __x86_64__
// A handler that forks finds the outer fork's locks taken, and gives them back: whichever instruction of giving it back
// is interrupted, a lock is given back once. The processor stops behind each, and each is one handler's turn.
template <class L>
int fork_at_each_step() {
  static constexpr greg_t kTrapFlag = 0x100;
  static L lock;
  static volatile sig_atomic_t steps = 0, forks_at = 0;
  static volatile bool stepping = false;
  struct sigaction action {
  }, before;
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t*, void* interrupted) {
    greg_t& flags = static_cast<ucontext_t*>(interrupted)->uc_mcontext.gregs[REG_EFL];
    flags = stepping ? flags | kTrapFlag : flags & ~kTrapFlag;
    steps = steps + 1;
    if (steps != forks_at) return;
    lock.lock_for_fork();
    lock.unlock_after_fork();
  };
  sigaction(SIGTRAP, &action, &before);
  do {
    lock.lock_for_fork();
    steps = 0;
    forks_at = forks_at + 1;
    stepping = true;
    raise(SIGTRAP);
    lock.unlock_after_fork();
    stepping = false;
    EXPECT_EQ(locks_held, 0) << "interrupted at step " << forks_at;
    EXPECT_FALSE(lock.held_here());
  } while (steps >= forks_at && locks_held == 0);
  sigaction(SIGTRAP, &before, nullptr);
  return forks_at;
}

TEST(Lock, IsGivenBackOnceWhereverAHandlerForks) {
  if (CISTERN_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer calls handlers later than at the step that is interrupted";
  EXPECT_GT(fork_at_each_step<Lock>(), 10);
  EXPECT_GT(fork_at_each_step<SpinLock>(), 10);
}
#endif

// A fork that takes the lock wakes the threads that sleep on it. No thread sleeps forever, and the lock excludes.
TEST(Lock, ManyThreadsAndForks) {
  Lock lock;
  std::uint64_t guarded = 0, taken = 0;
  std::atomic<std::uint64_t> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20000; ++i) {
        if (t % 2) {
          lock.lock();
        } else if (!lock.lock_unless_forking()) {
          ++refused;
          continue;
        }
        ++guarded;
        lock.unlock();
      }
    });
  for (int i = 0; i < 2000; ++i) {
    lock.lock_for_fork();
    ++guarded, ++taken;
    lock.unlock_after_fork();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(guarded, 6 * 20000 + taken - refused.load());
  EXPECT_EQ(locks_held, 0);
}

}  // namespace
}  // namespace cistern::host_pool
