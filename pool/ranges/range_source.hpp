// The calls that a range pool makes to a driver that maps pieces of physical memory into ranges of addresses: CUDA's
// virtual memory management, or a fake one.
#pragma once
#include <concepts>
#include <cstdint>

#include "pool/source.hpp"

namespace cistern::ranges {

// Handle: a piece of physical memory. Fence: what must end before others may use a block. Error: the native one, passed
// on unchanged. All calls are thread-safe, and none is made under a pool's lock. unmap() returns when no work of the
// driver uses the memory any more.
template <class S>
concept RangeSource = requires(S& source, typename S::Handle handle, typename S::Error error, typename S::Fence& fence,
                               std::uint64_t number) {
  { source.granularity() } -> std::same_as<std::uint64_t>;  // a power of two, at least 64 KiB
  { source.create(number) } -> std::same_as<Acquired<typename S::Handle, typename S::Error>>;
  { source.has_room(number) } -> std::same_as<bool>;  // no: so many bytes are certainly not there now
  { source.destroy(handle) } -> std::same_as<void>;
  { source.map(number, number, handle) } -> std::same_as<typename S::Error>;  // address, bytes
  { source.allow_access(number, number) } -> std::same_as<typename S::Error>;
  { source.unmap(number, number) } -> std::same_as<typename S::Error>;
  { source.settled(fence) } -> std::same_as<Settled>;
  { source.failed(error) } -> std::same_as<bool>;
  { source.out_of_memory(error) } -> std::same_as<bool>;
  { source.no_addresses() } -> std::same_as<typename S::Error>;  // the range is full
  { source.no_room() } -> std::same_as<typename S::Error>;       // create()'s error for want of memory
};

}  // namespace cistern::ranges
