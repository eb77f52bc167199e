// Asymmetric threads, after Lever and Boreham's malloc-test: half of the threads only allocate, the other half only
// free, and batches of blocks pass between them through a bounded queue.
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kBatchBlocks = 1000, kBatchesQueued = 20, kBatchesAll = 2500;

struct Batch {
  Block blocks[kBatchBlocks];
};

class Queue {
 public:
  void push(std::unique_ptr<Batch> batch) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return batches_.size() < kBatchesQueued; });
    batches_.push_back(std::move(batch));
    filled_.notify_one();
  }
  std::unique_ptr<Batch> pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return !batches_.empty(); });
    std::unique_ptr<Batch> batch = std::move(batches_.front());
    batches_.pop_front();
    room_.notify_one();
    return batch;
  }

 private:
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  std::deque<std::unique_ptr<Batch>> batches_;
};

void run(const Setting& setting) {
  const unsigned pairs = setting.threads > 1 ? setting.threads / 2 : 1;
  const std::size_t batches = kBatchesAll / pairs;
  Queue queue;
  in_threads(2 * pairs, [&](unsigned number) {
    Random random(setting.seed * 1000 + number);
    for (std::size_t done = 0; done < batches; ++done) {
      if (number % 2 == 0) {
        auto batch = std::make_unique<Batch>();
        for (Block& block : batch->blocks) block = Block::make(std::size_t{8} << random.below(6), random.next());
        queue.push(std::move(batch));
      } else {
        const std::unique_ptr<Batch> batch = queue.pop();
        for (Block& block : batch->blocks) block.release();
      }
    }
  });
}

const Workload xmalloc("xmalloc", run);

}  // namespace
}  // namespace host_bench
