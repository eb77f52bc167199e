// Copies of memory that may not be there, by the kernel.
#include "pool/staging/guarded_copy.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>

#include "pool/base/own_memory.hpp"
#include "tests/support/child.hpp"

namespace cistern::staging {
namespace {

bool copies_a_row() {
  const std::string from(10'000, 'x');
  std::string to(10'000, ' ');
  return guarded_copy({to.data(), from.data(), 10'000, 10'000, 10'000, 1}, Guarded::source) && to == from;
}

bool process_has_no_memory_of_its_own() {
  char from = 1, to = 0;
  const iovec here{&to, 1}, there{&from, 1};
  return system_call(SYS_process_vm_readv, static_cast<std::uintptr_t>(getpid()),
                     reinterpret_cast<std::uintptr_t>(&here), 1, reinterpret_cast<std::uintptr_t>(&there), 1,
                     0) == -ESRCH;
}

// As after pthread_exit in main.
TEST(GuardedCopy, WorksWhereTheFirstThreadHasEnded) {
  constexpr int kCopied = 42;
  bool copied = false;
  test::in_child(
      [] {
        std::thread([] {
          while (!process_has_no_memory_of_its_own()) std::this_thread::yield();
          _exit(copies_a_row() && guarded_copies_are_allowed() ? kCopied : 1);
        }).detach();
        syscall(SYS_exit, 0);
      },
      kCopied, &copied);
  EXPECT_TRUE(copied);
}

}  // namespace
}  // namespace cistern::staging
