// The end of one stream operation: not yet, or done. Anybody may wait for it.
#pragma once
#include <atomic>
#include <memory>

namespace simcuda {

class Marker {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  void complete() {
    done_.store(1, std::memory_order_release);
    done_.notify_all();
  }
  void wait() const {
    while (!done()) done_.wait(0, std::memory_order_acquire);
  }

 private:
  std::atomic<int> done_{0};
};

using MarkerPointer = std::shared_ptr<Marker>;

}  // namespace simcuda
