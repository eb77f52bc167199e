// Threads of the test, stopped and seen by the helper.
#include "shim/judged_copy/other_threads.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace cistern {
namespace {

class OtherThreadsTest : public testing::Test {
 protected:
  OtherThreadsTest()
      : bytes_(OtherThreads::table_bytes() + 40 * sizeof(OtherThread)),
        table_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  // The helper runs on this thread's shadow too.
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "processes that share memory are none that ThreadSanitizer knows";
#endif
  }
  ~OtherThreadsTest() override {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
    munmap(table_, bytes_);
  }
  // That counts, with a word of its own in its frame.
  void start(int count) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        ids_[at_++] = static_cast<int>(syscall(SYS_gettid));
        while (!over_) counted_.fetch_add(1, std::memory_order_relaxed);
      });
    while (at_ < count) std::this_thread::yield();
  }
  static const OtherThread* find(const OtherThreads& threads, int id) {
    for (const OtherThread& thread : threads.all())
      if (thread.id == id) return &thread;
    return nullptr;
  }

  const std::size_t bytes_;
  void* const table_;
  std::vector<std::thread> threads_;
  std::atomic<bool> over_{false};
  std::atomic<int> at_{0};
  int ids_[64] = {};
  std::atomic<std::uint64_t> counted_{0};
};

TEST_F(OtherThreadsTest, WhoIsStoppedStandsStillAndIsSeen) {
  start(5);
  OtherThreads threads(table_, bytes_);
  threads.look(0, 0);
  threads.stop();
  for (int i = 0; i < 5; ++i) {
    const OtherThread* const thread = find(threads, ids_[i]);
    ASSERT_TRUE(thread);
    if (thread->progress == Progress::refused) GTEST_SKIP() << "the system allows no ptrace here";
    EXPECT_TRUE(thread->is_complete);
    EXPECT_NE(thread->stack, 0u);
    EXPECT_NE(thread->thread_pointer, 0u);
    EXPECT_GT(thread->word_count, 30u);
    EXPECT_TRUE(threads.knows(ids_[i]));
  }
  const std::uint64_t before = counted_;
  usleep(20'000);
  EXPECT_EQ(counted_, before);
  threads.let_go();
  EXPECT_GT(threads.stopped_ns(), 20'000'000u);
  while (counted_ == before) std::this_thread::yield();
  EXPECT_FALSE(threads.knows(1));
}

TEST_F(OtherThreadsTest, WhoIsOnlyLookedAtRunsOn) {
  start(2);
  OtherThreads threads(table_, bytes_);
  threads.look(ids_[1], 0);
  EXPECT_TRUE(find(threads, ids_[0]));
  EXPECT_FALSE(find(threads, ids_[1])) << "it is ours";
  const std::uint64_t before = counted_;
  while (counted_ == before) std::this_thread::yield();
  threads.let_go();
  EXPECT_FALSE(find(threads, ids_[0])->is_complete);
  EXPECT_EQ(threads.stopped_ns(), 0u);
}

TEST_F(OtherThreadsTest, ThoseThatDoNotFitAreCounted) {
  start(6);
  OtherThreads threads(table_, 4 * sizeof(OtherThread));  // less the head of the table
  threads.look(0, 0);
  EXPECT_EQ(threads.all().size() + threads.left_out(), 6u);
  EXPECT_GT(threads.left_out(), 0u);
  EXPECT_TRUE(threads.knows(4711)) << "nobody knows";
}

}  // namespace
}  // namespace cistern
