// A thread that does one thing after another when told to, so that a test decides which thread does what, and when.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace cistern::test {

class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() { end(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Returns when the thread has done it.
  void run(std::function<void()> task) {
    std::unique_lock hold(mutex_);
    task_ = std::move(task);
    changed_.notify_all();
    changed_.wait(hold, [this] { return !task_; });
  }

  // Returns when the thread has ended.
  void end() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard hold(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

 private:
  void work() {
    std::unique_lock hold(mutex_);
    while (true) {
      changed_.wait(hold, [this] { return task_ || ending_; });
      if (!task_) return;
      task_();
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace cistern::test
