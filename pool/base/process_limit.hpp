// The process's own limits, asked without the C library's function, which another library may have replaced.
#pragma once
#include <cstdint>

#include "pool/base/system_call.hpp"

namespace cistern {

constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

// The soft limit of RLIMIT_AS and the like. The header that names these stays out, for who defines setrlimit.
inline std::uint64_t limit_of_process(int resource) {
  struct {
    std::uint64_t soft, hard;
  } limit{};
  const long answer =
      system_call(SYS_prlimit64, 0, static_cast<std::uintptr_t>(resource), 0, reinterpret_cast<std::uintptr_t>(&limit));
  return answer == 0 ? limit.soft : kNoLimit;  // infinity is the same number
}

}  // namespace cistern
