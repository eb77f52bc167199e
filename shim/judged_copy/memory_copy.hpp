// A copy of this process's memory as it stands in one moment, for somebody to look at in peace: a child that nobody
// sees (no signal at its end, no handler of fork runs, the files are the parent's own), which shares the mappings that
// it answers in and nothing else. The calling thread waits for it, and other threads go on.
//
// Page tables are copied in one go that nothing can interrupt, and afterwards each page that the program writes costs
// it a copy: so beforehand it is estimated whether there is time and room.
//
// In the child every address that the parent can read can be read. What is not copied (MADV_DONTFORK, a driver's
// mappings) is asked of the parent when it is touched; where the parent cannot read it either, it reads as zero and is
// counted.
//
// Room: a copy of the process that can be looked at in peace, and what its threads were doing when it was made.
// May include: pool/base, stats, shim/process.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cistern {

struct CopyWork {
  // In the child: no call that takes a lock of anybody's, or allocates. False: there was no time left.
  bool (*work)(void* context);
  void* context;
  std::uint64_t limit_ns;    // for all of it, from the call on
  std::size_t memory_bytes;  // that it may take
  // In the parent: the copy is made in between, and nothing else.
  void (*before_copy)(void* context);
  void (*after_copy)(void* context);
};

enum class CopyEnd { done, filtered, emulated, elsewhere, no_time, no_room, unseen, refused, crashed };
const char* reason_of(CopyEnd end);  // for all but `done`: "no time"

CopyEnd work_in_copy(const CopyWork& work);

// --- For `work`
bool copy_time_is_over();
std::uint64_t unreadable_bytes();

// Memory of the child's own, zero; null: no more. It was mapped before: what the child maps may come to lie where the
// parent has something that was not copied.
void* take_in_copy(std::size_t bytes);
// All of it: none of the program's.
struct CopyMemory {
  std::uintptr_t first, end;
};
CopyMemory memory_of_copy();
// To read; the parent closes it. -1: it cannot be opened.
int open_in_copy(const char* path);
// What the mapping says of each page of the parent: whether there is anything. -1: it cannot be asked.
int parent_pagemap();
// As `parent_pagemap`: /proc/self/maps of the parent.
int parent_maps();
// As `parent_pagemap`: /proc/self/timers of the parent.
int parent_timers();
// Reads what the child's own page does not have, as of MADV_WIPEONFORK.
void fetch_from_parent(std::uintptr_t first, std::size_t bytes);

}  // namespace cistern
