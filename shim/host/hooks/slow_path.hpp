// What the hooks have in common where the fast path does not do.
#pragma once
#include <cstdint>

#include "shim/host/c_library.hpp"
#include "shim/host/native.hpp"
#include "shim/host/serving.hpp"

namespace cistern::host {

[[gnu::tls_model("initial-exec")]] inline constinit thread_local int slow_depth = 0;

// The operators of another allocator may call malloc and free by name, or not. What one is at: giving back a block,
// which was counted; or making one, until that was counted. (Half an address: thread-local storage is scarce.)
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

// A pointer that no block of the pool starts at; the C library may know it (a plugin opened with RTLD_DEEPBIND got it
// there), or nobody.
inline bool is_native(void* block) { return !native_is_c_library() || c_library_may_own(block); }

}  // namespace cistern::host
