// Numbers for work that a driver was given, in order, and up to which of them all is known to have ended: what the
// clocks of all drivers are made of. Lock-free.
#pragma once
#include <atomic>
#include <cstdint>

namespace cistern {

// To `to`, unless it is there already.
inline void raise(std::atomic<std::uint64_t>& number, std::uint64_t to) {
  std::uint64_t known = number.load(std::memory_order_relaxed);
  while (known < to && !number.compare_exchange_weak(known, to)) {
  }
}

class WorkNumbers {
 public:
  std::uint64_t next() { return issued_.fetch_add(1) + 1; }
  std::uint64_t last() const { return issued_.load(); }
  void ended_up_to(std::uint64_t number) { raise(ended_, number); }
  bool ended(std::uint64_t number) const { return number <= ended_.load(); }

 private:
  std::atomic<std::uint64_t> issued_{0}, ended_{0};
};

}  // namespace cistern
