// Where stacks are in use, found from words on them.
#include "shim/judged_copy/live_stack.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <vector>

namespace cistern {
namespace {

[[gnu::noinline]] std::uintptr_t own_return_address() {
  return reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
}

TEST(LiveStack, WhatACallReturnsToIsBehindIt) {
  EXPECT_TRUE(is_behind_call(own_return_address()));
  std::uintptr_t (*volatile by_pointer)() = own_return_address;
  EXPECT_TRUE(is_behind_call(by_pointer()));
}

#if defined(__x86_64__)
TEST(LiveStack, BytesInFrontDecide) {
  unsigned char code[16] = {};
  const auto behind = [&](std::initializer_list<unsigned char> bytes) {
    std::fill(std::begin(code), std::end(code), 0x90);
    std::copy(bytes.begin(), bytes.end(), code + 8 - bytes.size());
    return is_behind_call(reinterpret_cast<std::uintptr_t>(code + 8));
  };
  EXPECT_TRUE(behind({0xE8, 1, 2, 3, 4}));
  EXPECT_TRUE(behind({0xFF, 0xD0}));              // call *%rax
  EXPECT_TRUE(behind({0x41, 0xFF, 0xD4}));        // call *%r12
  EXPECT_TRUE(behind({0xFF, 0x15, 1, 2, 3, 4}));  // call *X(%rip)
  EXPECT_TRUE(behind({0xFF, 0x50, 0x10}));        // call *16(%rax)
  EXPECT_FALSE(behind({0xC3}));
  EXPECT_FALSE(behind({0xFF, 0xE0}));  // jmp *%rax
  EXPECT_FALSE(behind({0x90, 0x90, 0x90}));
}

// The handler asks on its own stack for what it interrupted.
std::uintptr_t found = 0;
void look(int) {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  found = interrupted_stack(here, here + 4096);
}

TEST(LiveStack, AHandlerOnAnotherStackTellsWhatItInterrupted) {
  std::vector<char> room(std::size_t{64} * 1024);
  stack_t stack{}, before{};
  stack.ss_sp = room.data();
  stack.ss_size = room.size();
  ASSERT_EQ(sigaltstack(&stack, &before), 0);
  struct sigaction action {
  }, old{};
  action.sa_handler = look;
  action.sa_flags = SA_ONSTACK;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  found = 0;
  raise(SIGUSR1);
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  EXPECT_LT(found, here);
  EXPECT_GT(found, here - 4096);
  sigaction(SIGUSR1, &old, nullptr);
  if (before.ss_flags & SS_DISABLE) before.ss_size = room.size();
  sigaltstack(&before, nullptr);
}

TEST(LiveStack, WithoutAFrameOfASignalNothingIsFound) {
  const std::vector<std::uintptr_t> words(1000, 4711);
  const auto first = reinterpret_cast<std::uintptr_t>(words.data());
  EXPECT_EQ(interrupted_stack(first, first + 8000), 0u);
}
#endif

}  // namespace
}  // namespace cistern
