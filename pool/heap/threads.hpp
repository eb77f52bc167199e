// Threads that start, end and fork, as the host pool sees them.
#pragma once
#include <cstdint>

namespace cistern::host_pool {

// Once, early, outside of malloc: from then on threads that use the pool give their heap back when they end.
void prepare_thread_ends();
// The calling thread leaves its pages to others. It may go on allocating: then it gets a heap again.
void end_heap();

// The memory that the calling thread and ended threads keep goes to the region, and all of that but `keep_bytes` to the
// system. Returns the bytes given back.
unsigned long trim(unsigned long keep_bytes);
// The same, because memory is scarce: what is reserved stays.
std::uint64_t relieve();
// The same for memory that was unused for so long, of the region and of threads that ended. The pages of a live thread
// are for that thread alone to change, however long it sleeps.
std::uint64_t trim_unused(std::uint64_t unused_ns);

void threads_before_fork();
void threads_after_fork_in_parent();
// The child has one thread: what the others had is left to the orphanage, whatever they were doing.
void threads_after_fork_in_child();
// Finishes what those threads were about to do, so that counts are exact. Does nothing where the caller holds a lock of
// ours.
void reclaim_forked_away();

}  // namespace cistern::host_pool
