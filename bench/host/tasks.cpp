// A thread pool: closures, promises and strings made by one thread, used and freed by others, results the other way.
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <string>

#include "workload.hpp"

namespace host_bench {
namespace {

constexpr unsigned kBursts = 1000, kTasksPerBurst = 500, kTakenAtOnce = 16;

using Lines = std::vector<std::string>;
using Task = std::packaged_task<Lines()>;

class Pool {
 public:
  explicit Pool(unsigned workers) {
    for (unsigned at = 0; at < workers; ++at)
      threads_.emplace_back([this, at] {
        keep_to_core(at);
        work();
      });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    filled_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void add(std::vector<Task> tasks) {
    {
      const std::lock_guard lock(mutex_);
      for (Task& task : tasks) tasks_.push_back(std::move(task));
    }
    filled_.notify_all();
  }

 private:
  void work() {
    std::vector<Task> mine;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        filled_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        for (unsigned count = 0; count < kTakenAtOnce && !tasks_.empty(); ++count) {
          mine.push_back(std::move(tasks_.front()));
          tasks_.pop_front();
        }
      }
      for (Task& task : mine) task();
      mine.clear();
    }
  }
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Task> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

Lines repeated(const std::string& line) {
  Lines lines;
  for (std::size_t count = 0; count < 2 + line.size() % 6; ++count) lines.push_back(line + std::to_string(count));
  return lines;
}

struct Expected {
  std::string line;
  std::future<Lines> lines;
};

void run(const Setting& setting) {
  Random random(setting.seed);
  Pool pool(setting.threads);
  // Results of a burst are fetched when the next one is under way.
  std::vector<Expected> before;
  for (unsigned burst = 0; burst <= kBursts; ++burst) {
    std::vector<Task> tasks;
    std::vector<Expected> expected;
    for (unsigned at = 0; at < (burst < kBursts ? kTasksPerBurst : 0); ++at) {
      std::string line(random.between(4, 100), static_cast<char>('a' + random.below(26)));
      tasks.emplace_back([line] { return repeated(line); });
      expected.push_back({std::move(line), tasks.back().get_future()});
    }
    pool.add(std::move(tasks));
    for (Expected& each : before) {
      const Lines lines = each.lines.get();
      require(lines.size() == 2 + each.line.size() % 6, "lines are missing");
      for (const std::string& line : lines) require(line.starts_with(each.line), "a line changed");
    }
    before = std::move(expected);
  }
}

const Workload tasks("tasks", run);

}  // namespace
}  // namespace host_bench
