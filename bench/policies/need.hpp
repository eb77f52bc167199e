// The memory that no pool can do without: that of one that never has a hole of the wrong size. It takes first what work
// of its own stream has freed, where the order allows that, then what all work may use, and then new memory, which it
// keeps.
#pragma once
#include <algorithm>
#include <deque>
#include <unordered_map>

#include "bench/policies/policy.hpp"

namespace bench {

class Need {
 public:
  Need(const Device& device, Order order) : device_(device), order_(order) {}

  void allocate(std::uint64_t bytes, unsigned stream) {
    settle();
    live_ += bytes;
    live_peak_ = std::max(live_peak_, live_);
    if (order_ == Order::stream) take_in_order(waiting_[stream], bytes);
    const std::uint64_t of_any = std::min(bytes, free_);
    free_ -= of_any;
    in_all_ += bytes - of_any;
  }
  void deallocate(std::uint64_t bytes, unsigned stream) {
    live_ -= bytes;
    if (order_ == Order::strict)
      free_ += bytes;
    else
      waiting_[stream].push_back({device_.now(), bytes});
  }
  std::uint64_t live_peak() const { return live_peak_; }
  std::uint64_t in_all() const { return in_all_; }

 private:
  struct Freed {
    std::uint64_t moment, bytes;
  };
  // The newest first: the others settle sooner.
  void take_in_order(std::deque<Freed>& waiting, std::uint64_t& bytes) {
    while (bytes && !waiting.empty()) {
      const std::uint64_t part = std::min(bytes, waiting.back().bytes);
      bytes -= part;
      waiting.back().bytes -= part;
      if (!waiting.back().bytes) waiting.pop_back();
    }
  }
  void settle() {
    for (auto& [stream, waiting] : waiting_)
      for (; !waiting.empty() && device_.has_ended(waiting.front().moment); waiting.pop_front())
        free_ += waiting.front().bytes;
  }

  const Device& device_;
  const Order order_;
  std::unordered_map<unsigned, std::deque<Freed>> waiting_;
  std::uint64_t live_ = 0, live_peak_ = 0, free_ = 0, in_all_ = 0;
};

}  // namespace bench
