// Who serves the program's host memory: the pool, or the functions that would have without us.
#pragma once

namespace cistern::host {

enum class Serving : int {
  undecided,  // the environment can't be read yet: the pool serves, its blocks are known for ever after
  pool,
  native,  // CISTERN_HOST_POOL=off, no memory for the pool's window, or an allocator of the program's own
};

Serving serving();
// The program links or preloads another allocator.
bool brings_own_allocator();
// CISTERN_HOST_MISUSE
bool abort_on_misuse();
// The window of the pool could not be had: from now on everything is native.
void give_up_pool();

}  // namespace cistern::host
