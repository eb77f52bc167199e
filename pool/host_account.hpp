// What lives in the host pool, counted from the pages themselves: nothing is counted while the program runs.
// Exact once no thread is inside a call; blocks of threads that have ended are seen like all others.
#pragma once
#include "pool/host_layout.hpp"

namespace cistern::host_pool {

struct ClassAccount {
  std::uint64_t live_blocks = 0;
  std::uint64_t free_blocks = 0;  // in pages of the class, those never used among them
  std::uint64_t allocations = 0;  // ever; in a forked child since the fork
  std::uint64_t page_bytes = 0;
};

struct Account {
  ClassAccount classes[kClasses];
  std::uint64_t large_blocks = 0, large_bytes = 0, large_allocations = 0;
  std::uint64_t moves = 0;             // of `allocations` of the classes, those that moved a block
  std::uint64_t inherited_blocks = 0;  // that lived when this process was forked
  std::uint64_t live_blocks() const;
  std::uint64_t live_bytes() const;  // usable
  std::uint64_t allocations() const;
};

Account account();

// Allocations are counted from here on: in a forked child.
void restart_account();

}  // namespace cistern::host_pool
