// Every system call of a fixed sequence of operations fails once: an operation that needed it answers null and changes
// nothing, the blocks there are keep their contents, and what follows works.
#include <errno.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/child.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::in_child;
using test::Live;
using test::live_now;
using test::live_since;
using test::put;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// --- System calls: the n-th fails, and with `persistently` all behind it
System real_system;
int calls, fail_at;
bool persistently;

bool fails() {
  ++calls;
  return persistently ? calls >= fail_at : calls == fail_at;
}

void intercept_system(int at, bool all_behind) {
  real_system = region_system;
  calls = 0;
  fail_at = at;
  persistently = all_behind;
  region_system.map = [](void* memory, std::size_t bytes) {
    if (fails()) {
      errno = ENOMEM;
      return false;
    }
    return real_system.map(memory, bytes);
  };
  region_system.describe = [](void* memory, std::size_t bytes) {
    return !fails() && real_system.describe(memory, bytes);
  };
  region_system.move = [](void* from, void* to, std::size_t bytes) {
    return !fails() && real_system.move(from, to, bytes);
  };
}

// --- The operations
struct Held {
  void* block = nullptr;
  std::size_t bytes = 0;
};

class Sequence {
 public:
  void run() {
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{5000}, std::size_t{40000}, kMiB, 2 * kMiB + 5000}) {
      keep(get(bytes), bytes);
      keep(allocate_aligned(8192, bytes), bytes);
      keep(allocate_aligned(4 * kMiB, bytes), bytes);
      void* const zeroed = allocate_zeroed(bytes);
      if (zeroed) {
        EXPECT_TRUE(test::is_zero(zeroed, bytes));
      }
      keep(zeroed, bytes);
    }
    for (const unsigned id : {3u, 20u, 40u, 60u, kClasses - 1})  // through several chunks
      for (std::size_t i = 0; i < (2 * kMiB) / class_bytes(id) && i < 600; ++i)
        keep(get(class_bytes(id)), class_bytes(id));
    for (std::size_t i = 0; i < 20 && i < held_.size(); ++i)
      resize(held_[i], held_[i].bytes + (held_[i].bytes + 5) * 2);
    for (std::size_t i = 0; i < 20 && i < held_.size(); ++i) resize(held_[i], held_[i].bytes / 3);
    for (int i = 0; i < 5; ++i) keep(get(3 * kMiB), 3 * kMiB);
    for (std::size_t i = held_.size() - std::min<std::size_t>(5, held_.size()); i < held_.size(); ++i)
      resize(held_[i], 7 * kMiB);
    check();
  }
  void check() {
    for (std::size_t i = 0; i < held_.size(); ++i)
      ASSERT_TRUE(test::is_filled(held_[i].block, held_[i].bytes, tag(held_[i]))) << held_[i].bytes;
  }
  void free_all() {
    for (const Held& one : held_) ASSERT_EQ(put(one.block), Freed::yes);
    held_.clear();
  }
  Live live() const {
    Live live;
    for (const Held& one : held_) test::count_block(live, one.block, 1);
    return live;
  }
  int refused = 0;

 private:
  static std::uint64_t tag(const Held& one) { return address_of(one.block) + one.bytes; }
  void keep(void* block, std::size_t bytes) {
    if (!block) {
      ++refused;
      return;
    }
    held_.push_back({block, bytes});
    test::fill(block, bytes, tag(held_.back()));
  }
  void resize(Held& one, std::size_t bytes) {
    const Held before = one;
    const std::size_t usable = usable_bytes(one.block);
    if (void* const resized = reallocate(one.block, bytes)) {
      EXPECT_TRUE(test::is_filled(resized, before.bytes, tag(before), std::min(before.bytes, bytes)));
      one = {resized, bytes};
      test::fill(resized, bytes, tag(one));
    } else {
      ++refused;
      EXPECT_GT(bytes, before.bytes);  // making a block smaller needs no memory
      EXPECT_EQ(usable_bytes(one.block), usable);
      EXPECT_TRUE(test::is_filled(before.block, before.bytes, tag(before)));
    }
  }

  std::vector<Held> held_;
};

// So that what follows needs the system.
void use_up_free_spans() {
  trim_region(0);
  while (const std::uint64_t bytes = region_figures().largest_free_bytes)
    ASSERT_TRUE(acquire_span(static_cast<std::uint32_t>(bytes / kSliceBytes)).first);
}

void with_failing_call(int at, bool all_behind, bool* reached) {
  in_child(
      [=] {
        test::in_new_thread([=] {
          const Live before = live_now();
          use_up_free_spans();
          Sequence sequence;
          intercept_system(at, all_behind);
          sequence.run();
          const int made = calls;
          region_system = real_system;
          EXPECT_EQ(live_since(before), sequence.live());
          EXPECT_EQ(test::region_fault(), "");
          if (all_behind && at == 1) {
            EXPECT_GT(sequence.refused, 0);
          }
          sequence.refused = 0;
          sequence.run();
          EXPECT_EQ(sequence.refused, 0);
          EXPECT_EQ(live_since(before), sequence.live());
          sequence.free_all();
          EXPECT_EQ(live_since(before), Live{});
          EXPECT_EQ(test::region_fault(), "");
          if (made < at && !testing::Test::HasFailure()) _exit(77);  // there is no such call any more
        });
      },
      77, reached);
}

class HostFailingCallsTest : public testing::TestWithParam<bool> {};

TEST_P(HostFailingCallsTest, EachCallFails) {
  constexpr int kCallsMax = 400;
  int at = 1;
  bool done = false;
  while (!done && at < kCallsMax && !HasFailure()) {
    SCOPED_TRACE(testing::Message() << "call " << at);
    with_failing_call(at++, GetParam(), &done);
  }
  EXPECT_TRUE(done);
  EXPECT_GT(at, 10);  // else nothing was tried
  RecordProperty("calls", at - 1);
}

INSTANTIATE_TEST_SUITE_P(OnceOrFromThenOn, HostFailingCallsTest, testing::Bool());

}  // namespace
}  // namespace cistern::host_pool
