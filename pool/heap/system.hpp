// The host pool's calls of the system: for its memory, and for the limits of it.
//
// Calls about the program's memory go through the C library, where other libraries can intercept them: a registration
// cache of an MPI fabric must learn that pages leave. Such a library's function may allocate, take locks of its own,
// even fork, so it is called without a lock of ours. A nested malloc makes no such call again, and asks the C library
// where the pool has nothing (CallingSystem). Memory of our own (descriptors, heaps) comes by raw system calls.
#pragma once
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "pool/base/clock.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/process_limit.hpp"
#include "pool/heap/layout.hpp"

namespace cistern::host_pool {

// Replaced by tests that make calls fail.
struct System {
  // At exactly this address, or false.
  bool (*map)(void* at, std::size_t bytes);
  bool (*describe)(void* at, std::size_t bytes);   // the same for descriptors, which read as zero
  void (*give_back)(void* at, std::size_t bytes);  // the pages read as zero afterwards
  bool (*unmap)(void* at, std::size_t bytes);      // false: it is mapped still
  bool (*renew)(void* at, std::size_t bytes);      // fresh memory takes the place of what is mapped; false: not
  // mremap; both stay mapped, and `from` reads as zero. False: only `to` may have lost its content.
  bool (*move)(void* from, void* to, std::size_t bytes);
  void (*make_resident)(void* at, std::size_t bytes);  // or not: it is but faster than one page fault after another
  std::uint64_t (*limit_bytes)();                      // bytes that the process may map; kNoLimit: no limit
  // For huge pages: chunks are multiples of this, in place and length, and nothing is ever given back or moved.
  std::size_t unit_bytes = kSliceBytes;
  bool keeps_pages = false;
  std::uint64_t (*now_ns)() = coarse_monotonic_ns;
};
extern constinit System region_system;

// Advice for each new chunk: a NUMA policy, huge pages.
using ChunkAdvice = void (*)(void* memory, std::size_t bytes);

// Facts about the machine, found before there is a window.
struct Machine {
  std::uint64_t physical_bytes, random, limit_bytes;
};
Machine look_at_machine();

// Lives around each call of a function that another library may have replaced.
class CallingSystem {
 public:
  CallingSystem() : outer_(called_from) {
    assert(locks_held == 0);
    called_from = place_of(__builtin_frame_address(0));
  }
  ~CallingSystem() { called_from = outer_; }
  CallingSystem(const CallingSystem&) = delete;
  CallingSystem& operator=(const CallingSystem&) = delete;

  // Whether the calling code runs inside of such a call of its thread. One that was left by a jump (a handler's) counts
  // only for deeper frames.
  static bool is_under_way() {
    return called_from && static_cast<std::int32_t>(called_from - place_of(__builtin_frame_address(0))) > 0;
  }

 private:
  // Never 0. Half of an address says which frame is the deeper one, and thread-local memory is scarce.
  static std::uint32_t place_of(const void* frame) { return static_cast<std::uint32_t>(address_of(frame)) | 1; }

  [[gnu::tls_model("initial-exec")]] static constinit thread_local std::uint32_t called_from;  // region.cpp
  const std::uint32_t outer_;
};

}  // namespace cistern::host_pool
