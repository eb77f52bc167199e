// One thread allocates, the other frees, in strict order, through a ring of pointers: every free is a remote one.
#include <semaphore.h>

#include <array>

#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kRing = 16'384, kBatch = 2048, kBytes = 64, kBatchesAll = 1800;

// Whole batches are passed on, and each side waits in the kernel, so that the CPU time is that of the work.
class Ring {
 public:
  Ring() {
    sem_init(&room_, 0, kRing / kBatch);
    sem_init(&filled_, 0, 0);
  }
  void produce(std::size_t batches) {
    for (std::size_t at = 0; at < batches * kBatch; ++at) {
      if (at % kBatch == 0) wait(room_);
      void* block = std::malloc(kBytes);
      require(block != nullptr, "malloc returned null");
      stamp(block, kBytes, at);
      slots_[at % kRing] = block;
      if (at % kBatch == kBatch - 1) sem_post(&filled_);
    }
  }
  void consume(std::size_t batches) {
    for (std::size_t at = 0; at < batches * kBatch; ++at) {
      if (at % kBatch == 0) wait(filled_);
      check_stamp(slots_[at % kRing], kBytes, at);
      std::free(slots_[at % kRing]);
      if (at % kBatch == kBatch - 1) sem_post(&room_);
    }
  }

 private:
  static void wait(sem_t& semaphore) { require(sem_wait(&semaphore) == 0, "waiting failed"); }
  std::array<void*, kRing> slots_;
  sem_t room_, filled_;
};

void run(const Setting& setting) {
  const unsigned pairs = setting.threads > 1 ? setting.threads / 2 : 1;
  std::vector<Ring> rings(pairs);
  in_threads(2 * pairs, [&](unsigned number) {
    Ring& ring = rings[number / 2];
    if (number % 2 == 0)
      ring.produce(kBatchesAll / pairs);
    else
      ring.consume(kBatchesAll / pairs);
  });
}

const Workload producer_consumer("producer_consumer", run);

}  // namespace
}  // namespace host_bench
