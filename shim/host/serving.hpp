// Who serves the program's host memory: the pool, or the functions that would have without us.
//
// Room: host memory: who serves it, what is counted, its call sites and misuse.
// May include: pool/base, pool/heap, stats, shim/process, shim/include/cistern.
#pragma once

namespace cistern::host {

enum class Serving : int {
  undecided,  // the environment can't be read yet: the pool serves, its blocks are known for ever after
  pool,
  native,  // CISTERN_HOST_POOL=off, or another allocator behind us: counted and passed on
  aside,   // see Owner::other: passed on, each function to the next of its own name
};

Serving serving();
inline bool pool_serves() { return serving() <= Serving::pool; }
// Where nothing of ours does, the reports say why not.
void say_who_serves();
// From now on the C library serves, which knows what the program asked it for; the pool's blocks stay the pool's.
// Other threads notice when they need memory that they have not freed themselves.
void leave_to_c_library();
// CISTERN_HOST_MISUSE
bool abort_on_misuse();

}  // namespace cistern::host
