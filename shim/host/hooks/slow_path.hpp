// The parts that several hooks share once the fast path did not serve a call.
#pragma once
#include <cstdint>

#include "shim/host/c_library.hpp"
#include "shim/host/native.hpp"
#include "shim/host/serving.hpp"

namespace cistern::host {

[[gnu::tls_model("initial-exec")]] inline constinit thread_local int slow_depth = 0;

// Operators new and delete of another allocator may call malloc and free by name, or not. This says which of them the
// thread is inside, so that a block is counted once: a delete with its block, already counted, or a new whose block is
// not counted yet. It has half an address, because thread-local storage is scarce.
using InOperator = std::uint32_t;
[[gnu::tls_model("initial-exec")]] inline constinit thread_local InOperator in_operator = 0;
inline constexpr InOperator kMaking = 1;
inline InOperator giving_back(const void* block) {
  return static_cast<InOperator>(reinterpret_cast<std::uintptr_t>(block) >> 3) << 2 | 2;
}

class InsideSlowPath {
 public:
  InsideSlowPath() { slow_depth = slow_depth + 1; }
  ~InsideSlowPath() { slow_depth = slow_depth - 1; }
};

inline bool pooled() { return pool_serves(); }

inline std::size_t native_usable(void* block) { return native().malloc_usable_size(block); }

// Whether a pointer that is not a block of the pool may be one of the allocator behind Cistern. A plugin that was
// opened with RTLD_DEEPBIND gets such blocks from the C library.
inline bool is_native(void* block) { return !native_is_c_library() || c_library_may_own(block); }

}  // namespace cistern::host
