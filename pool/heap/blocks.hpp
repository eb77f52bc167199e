// The host pool as its users see it: blocks allocated, freed, resized, asked about. Thread-safe but for a block's own
// life, which is the program's affair. Nothing here sets errno or prints; errno may change in what is called.
//
// Room: the host pool, a malloc of its own.
// May include: pool/base.
#pragma once
#include "pool/heap/fast_path.hpp"

namespace cistern::host_pool {

// Null: no memory, or larger than the window allows. `bytes` 0 gives a block of its own.
void* allocate(std::size_t bytes);
// The same, where allocate_quickly (medium.hpp) had nothing.
void* allocate_slowly(std::size_t bytes);
// The memory is zero.
void* allocate_zeroed(std::size_t bytes);
// `alignment`: a power of two.
void* allocate_aligned(std::size_t alignment, std::size_t bytes);

enum class Freed {
  yes,
  foreign,      // not of this pool
  double_free,  // free already
  invalid,      // inside a block, or in memory of the pool that is no block
};
// Frees `block` and says what it was; any answer but `yes` leaves everything as it was.
Freed deallocate(void* block);

// In place or moved, contents kept; null: no memory, `block` stays as it is. `block` is live and of this pool.
void* reallocate(void* block, std::size_t bytes);

// Keeps memory for `count` blocks more than are free: false: there is not so much.
bool reserve_blocks(std::size_t bytes, std::size_t count);

// Usable bytes of a block of this pool, of which `block` is the start; 0: it lies in none.
std::size_t usable_bytes(const void* block);

// Whether a block of this pool is in the program's hands: not free, as far as its mark and the lists say.
bool is_live(const void* block);

// Call sites from now on (sampling.hpp). Outside of malloc, while the process has one thread.
void start_sampling(const SamplePolicy& policy);

// Facts about an address for a message: the block that the address lies in, if any.
struct Whereabouts {
  bool in_pool = false;
  bool free = false;            // the memory is not in use, or the block is on a free list
  const void* block = nullptr;  // the block that the address lies in; null: none
  std::size_t block_bytes = 0;
  bool never_given = false;  // the block waits to be handed out for the first time
  std::uint32_t site = 0;    // where the block was allocated, as far as that is known
};
Whereabouts whereabouts(const void* address);

}  // namespace cistern::host_pool
