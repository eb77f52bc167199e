// Another thread that a fake source holds up in the middle of a call, until the thread of the test has run out of
// memory and had time to fail.
#pragma once
#include <atomic>
#include <chrono>
#include <thread>

namespace cistern::test {

class OtherThread {
 public:
  // `refusals`: how often the source was out of memory.
  explicit OtherThread(const std::atomic<int>& refusals) : refusals_(refusals) {}
  void end() { thread_.join(); }

  // The source calls it in the middle. It holds up the first thread that comes.
  void hold_up() {
    if (is_there_.exchange(true)) return;
    while (!refusals_.load()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // Returns when it is held up.
  template <class Work>
  void begin(Work work) {
    thread_ = std::thread(work);
    while (!is_there_.load()) std::this_thread::yield();
  }

 private:
  const std::atomic<int>& refusals_;
  std::atomic<bool> is_there_{false};
  std::thread thread_;
};

}  // namespace cistern::test
