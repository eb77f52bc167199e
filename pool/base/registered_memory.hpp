// Which host memory the program registered with a driver or locked, until it ends that. The host pool asks when it
// takes a large block back. The program's libraries wait for the unmapping of memory that they registered, by hooks of
// memory functions, to end the registration (UCX, Open MPI, libfabric), and an unmapping ends a lock: so the pages of
// such a block go back to the system before it is handed out again.
#pragma once
#include <atomic>
#include <cstddef>

namespace cistern {

void note_registered(const void* memory, std::size_t bytes);
void forget_registered(const void* memory, std::size_t bytes);

// Whole system pages, as mlock and munlock take them.
void note_locked(const void* memory, std::size_t bytes);
// `free` calls it, so it does not wait for a thread that forks: the range stays noted then.
void forget_locked(const void* memory, std::size_t bytes);
// All memory of the process; `future`: whatever it maps later, too. Then freed memory stays locked, as the next block's
// would be.
void note_all_locked(bool future);
void forget_all_locked();

struct Registered {
  bool registered = false, locked = false;
  explicit operator bool() const { return registered || locked; }
};

namespace registered_memory {
inline constinit std::atomic<bool> any{false}, future_locked{false};
// Both, where the table is not to be had at the moment: a thread forks, or this one was interrupted while it has it.
Registered find(const void* memory, std::size_t bytes);
}  // namespace registered_memory

// Whether any byte of it is. Most programs register and lock nothing: then that is one load.
inline Registered registered_in(const void* memory, std::size_t bytes) {
  if (!registered_memory::any.load(std::memory_order_relaxed)) [[likely]]
    return {};
  return registered_memory::find(memory, bytes);
}

// Linux counts memory that is locked twice when its pages move and the addresses that they leave stay mapped.
inline bool may_be_moved(const void* memory, std::size_t bytes) {
  return !registered_memory::future_locked.load(std::memory_order_relaxed) && !registered_in(memory, bytes).locked;
}

void registered_memory_before_fork();
void registered_memory_after_fork();
// A child has none of its parent's registrations and locks.
void registered_memory_after_fork_in_child();

}  // namespace cistern
