// The CPUs that a thread may run on, of any number that Linux can have. By system calls: the C library's sets end at
// 1,024 CPUs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pool/base/bit_count.hpp"
#include "pool/base/system_call.hpp"

namespace cistern::staging {

class CpuMask {
 public:
  // None, where the system does not say.
  static CpuMask of_this_thread() {
    CpuMask mask;
    const long bytes = system_call(SYS_sched_getaffinity, 0, sizeof mask.words_, mask.address());
    if (bytes > 0) mask.count_ = static_cast<std::size_t>(bytes) / sizeof(std::uint64_t);
    return mask;
  }
  // False: the thread runs where it did.
  bool move_this_thread() const {
    return system_call(SYS_sched_setaffinity, 0, count_ * sizeof(std::uint64_t), address()) == 0;
  }

  unsigned cpus() const {
    unsigned sum = 0;
    for (std::size_t i = 0; i < count_; ++i) sum += count_bits(words_[i]);
    return sum;
  }
  bool within(const CpuMask& other) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (words_[i] & ~other.words_[i]) return false;
    return true;
  }
  bool operator==(const CpuMask& other) const {
    return count_ == other.count_ && std::memcmp(words_, other.words_, count_ * sizeof(std::uint64_t)) == 0;
  }

 private:
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(words_); }

  std::size_t count_ = 0;
  std::uint64_t words_[8192 / 64]{};
};

}  // namespace cistern::staging
