// A pool's source: it hands out whole chunks of one kind (mmap, cuMemAlloc, clCreateBuffer...) and takes them back. It
// is injected, so that every pool runs in tests over a fake one.
//
// Room: pools of chunks that come from a source, whatever the memory is.
// May include: pool/base.
#pragma once
#include <atomic>
#include <concepts>
#include <cstdint>

namespace cistern {

// Whether the commands that used a chunk have ended. `never`: that can't be found out any more; the chunk must go back.
enum class Settled { yes, no, never };

// A source that is out of memory answers so, or first has what is kept elsewhere given back, and waits for work.
enum class Shortage { refuses, makes_room };

template <class Chunk, class Error>
struct Acquired {
  Chunk chunk;
  Error error;  // the native error, passed on unchanged
  bool ok;
};

// Chunk: a small value (handle or pointer). Request: everything that makes a chunk. Fence: what must end before a
// chunk may be seen again; default-constructed: nothing. All calls are thread-safe, and none is made under a pool's
// lock. A source whose release() does not wait for commands has release_unsettled(chunk) too, for chunks whose fence
// has not settled. One that wants to know how much waits has note_waiting(chunk, change of bytes), which only counts:
// it is called under the pool's lock.
template <class S>
concept Source = requires(S& source, const typename S::Request& request, typename S::Chunk chunk,
                          typename S::Fence& fence, typename S::Error error) {
  { source.acquire(request) } -> std::same_as<Acquired<typename S::Chunk, typename S::Error>>;
  { source.release(chunk) } -> std::same_as<void>;
  { source.settled(chunk, fence) } -> std::same_as<Settled>;
  { source.out_of_memory(error) } -> std::same_as<bool>;
};

// Calls into the driver, counted by each source.
struct DriverCalls {
  std::atomic<std::uint64_t> allocs{0}, frees{0}, syncs{0}, queries{0};
  void reset() { allocs = frees = syncs = queries = 0; }
};

}  // namespace cistern
