// The lock of the pages of sampled blocks.
#pragma once
#include <sys/single_threaded.h>

#include "pool/base/lock.hpp"

namespace cistern::host_pool {

// While the process has one thread no bus is locked for it, as in the C library's own malloc. A signal handler that
// comes between the look and the store has given the lock back when it returns.
class ShardLock : public SpinLock {
 public:
  bool lock_unless_forking() { return lock_alone() || SpinLock::lock_unless_forking(); }

 private:
  bool lock_alone() {
    if (!__libc_single_threaded) return false;
    locks_held = locks_held + 1;
    if (seen() == kFree) {
      word_.store(of_this_thread(), std::memory_order_relaxed);
      return true;
    }
    locks_held = locks_held - 1;
    return false;
  }
};

}  // namespace cistern::host_pool
