// Memory of each kind, as the library's pools take it from and give it back to the process's own pool of that kind: the
// functions that the hooks call too. Statuses are the library's; the driver's own codes are noted (answers.hpp).
#pragma once
#include "shim/library/library.hpp"

namespace cistern::library {

// Device memory in the order of a stream (cistern/plugins.h), null being the default one.
struct InOrder {
  bool of_stream = false;
  void* stream = nullptr;
};

// A block as it was asked for: what a request leaves open has been filled in.
struct Wanted {
  cistern_kind kind;
  std::size_t bytes, alignment;
  std::uint64_t flags;
  unsigned where;
  int device, node;
  struct _cl_context* context;
  InOrder order = {};
};

// What the kind gave. `placed_bytes`: whole pages of it that lie where they were wanted.
struct Taken {
  std::uintptr_t base = 0, address = 0;
  std::uint64_t placed_bytes = 0;
  int device = -1;
  bool was_kept = false;  // it had been used before; not known of host memory
};

// CISTERN_INVALID: not for the kind; CISTERN_NO_MEMORY: nobody has so much.
cistern_status check(const Wanted& wanted);
// As it comes, or with room for alignment and whole pages (`taken.base` is what goes back then).
cistern_status take(const Wanted& wanted, Taken* taken);
cistern_status give(cistern_kind kind, const Taken& taken, void* queue, InOrder order = {});

// Has so many blocks made and kept, beyond what is kept: none of the program's.
cistern_status reserve(const Wanted& wanted, std::size_t count);

// One of the process's own pool, as realloc.
cistern_status resize_host_block(const char* api, void** block, std::size_t bytes);

// For blocks that have no record of a pool: in which device's context such a one goes back, where the thread has none.
int device_for_free(cistern_kind kind, const void* block);
// 0: not known.
std::size_t bytes_of(cistern_kind kind, const void* block);
// So much of a block's contents to another one, before this returns or `give` of the first one does.
cistern_status copy_contents(cistern_kind kind, void* target, const void* source, std::size_t bytes, int device,
                             void* queue);

}  // namespace cistern::library
