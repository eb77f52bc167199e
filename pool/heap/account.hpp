// The live blocks of the host pool, counted from the pages themselves: nothing is counted while the program runs. The
// account is exact once no thread is inside a call. Blocks of threads that have ended count like all others.
#pragma once
#include "pool/heap/heap_account.hpp"

namespace cistern::host_pool {

Account account();

// In a forked child: allocations count from here on. Heaps whose threads the child does not have are counted as they
// were at the fork, when they are taken apart (count_forked_away).
void restart_account();

}  // namespace cistern::host_pool
