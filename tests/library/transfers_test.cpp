// Transfers: copies by priority, a few at a time, tried again, counted; in races, forks and misuse. CUDA is the
// simulated driver.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/library/captured.hpp"
#include "tests/library/kinds.hpp"
#include "tests/simcuda/simcuda.h"

#ifdef __SANITIZE_THREAD__
// A thread that ends may free what the C library keeps of another one, by locks that the sanitizer does not see.
extern "C" const char* __tsan_default_suppressions() { return "race:_dl_deallocate_tls\n"; }
#endif

namespace {

struct Ended {
  std::uint64_t copy;
  cistern_status status;
};

// What was told, in its order.
struct Told {
  std::mutex lock;
  std::vector<Ended> ended;
  static void note(cistern_transfer*, std::uint64_t copy, cistern_status status, int, void* user) {
    Told& told = *static_cast<Told*>(user);
    const std::lock_guard hold(told.lock);
    told.ended.push_back({copy, status});
  }
};

cistern_transfer_settings settings(unsigned at_once, Told* told = nullptr) {
  cistern_transfer_settings of{};
  of.struct_bytes = sizeof of;
  of.copies_at_once = at_once;
  of.pause_microseconds = 10;
  if (told) of.done = Told::note, of.user = told;
  return of;
}

cistern_transfer* make(const cistern_transfer_settings& of) {
  cistern_transfer* transfer = nullptr;
  EXPECT_EQ(cistern_transfer_create(&of, &transfer), CISTERN_OK);
  return transfer;
}

cistern_transfer_statistics figures(cistern_transfer* transfer) {
  auto of = cistern::sized<cistern_transfer_statistics>();
  EXPECT_EQ(cistern_transfer_get_statistics(transfer, &of), CISTERN_OK);
  return of;
}

cistern_copy_request copy(void* target, const void* source, std::size_t bytes, int priority = 0) {
  cistern_copy_request of{};
  of.struct_bytes = sizeof of;
  of.target = target;
  of.source = source;
  of.bytes = bytes;
  of.priority = priority;
  return of;
}

std::vector<unsigned char> pattern(std::size_t count, unsigned seed) {
  std::vector<unsigned char> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>((i * 131 + seed) >> 2);
  return bytes;
}

class CudaTransfers : public testing::Test {
 protected:
  void SetUp() override {
    if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
    cistern_pool_settings of{};
    of.struct_bytes = sizeof of;
    of.kind = CISTERN_DEVICE;
    ASSERT_EQ(cistern_pool_create(&of, &pool_), CISTERN_OK);
  }
  void TearDown() override {
    simcuda_set_value("fail_every", 0);
    simcuda_set_value("link_to_device_mbps", 0);
    if (!pool_) return;
    for (void* block : blocks_) EXPECT_EQ(cistern_pool_deallocate(pool_, block, nullptr), CISTERN_OK);
    EXPECT_EQ(cistern_pool_destroy(pool_), CISTERN_OK);
  }
  void* on_device(std::size_t bytes) {
    void* block = nullptr;
    EXPECT_EQ(cistern_pool_allocate(pool_, bytes, 0, &block), CISTERN_OK);
    blocks_.push_back(block);
    return block;
  }

 private:
  cistern_pool* pool_ = nullptr;
  std::vector<void*> blocks_;
};

// Both ways, small ones and some that are staged; what arrives is what was sent.
TEST_F(CudaTransfers, BringAllThatTheyWereGiven) {
  Told told;
  cistern_transfer* const transfer = make(settings(4, &told));
  constexpr unsigned kCount = 40;
  std::vector<std::vector<unsigned char>> sent, received(kCount);
  std::vector<void*> there;
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < kCount; ++i) {
    sent.push_back(pattern(1 + i * 90'001, i));
    there.push_back(on_device(sent[i].size()));
    const cistern_copy_request of = copy(there[i], sent[i].data(), sent[i].size());
    std::uint64_t number = 0;
    ASSERT_EQ(cistern_transfer_add(transfer, &of, &number), CISTERN_OK);
    EXPECT_EQ(number, i + 1);
    bytes += sent[i].size();
  }
  ASSERT_EQ(cistern_transfer_wait(transfer, -1), CISTERN_OK);
  for (unsigned i = 0; i < kCount; ++i) {
    received[i].resize(sent[i].size());
    const cistern_copy_request of = copy(received[i].data(), there[i], sent[i].size());
    ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
  }
  ASSERT_EQ(cistern_transfer_wait(transfer, 60), CISTERN_OK);
  EXPECT_EQ(sent, received);
  const cistern_transfer_statistics of = figures(transfer);
  EXPECT_EQ(of.copies, 2 * kCount);
  EXPECT_EQ(of.done, 2 * kCount);
  EXPECT_EQ(of.failed, 0u);
  EXPECT_EQ(of.waiting + of.running, 0u);
  EXPECT_EQ(of.bytes_done, 2 * bytes);
  EXPECT_LE(of.running_at_once, 4u);
  EXPECT_GT(of.seconds, 0);
  EXPECT_GT(of.bytes_per_second, 0);
  EXPECT_EQ(told.ended.size(), 2 * kCount);
  EXPECT_EQ(cistern_transfer_next_failed(transfer, nullptr, nullptr, nullptr), CISTERN_EMPTY);
  EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
  EXPECT_EQ(simcuda_value("live_streams"), 0) << "all threads have ended";
}

// A hundred rows of one matrix go as one copy; what does not continue the one before, or is large, goes alone.
TEST_F(CudaTransfers, MergeSmallOnesThatContinueEachOther) {
  Told told;
  cistern_transfer* const transfer = make(settings(1, &told));
  constexpr std::size_t kRow = 1000, kRows = 100, kLarge = 100'000;
  const std::vector<unsigned char> sent = pattern(kRow * kRows + 3 * kLarge, 5);
  std::vector<unsigned char> received(sent.size());
  auto* const there = static_cast<char*>(on_device(sent.size()));
  ASSERT_EQ(cistern_transfer_hold(transfer, 1), CISTERN_OK);
  const auto add = [&](std::size_t offset, std::size_t bytes) {
    const cistern_copy_request of = copy(there + offset, sent.data() + offset, bytes);
    ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
  };
  for (std::size_t row = 0; row < kRows; ++row) add(row * kRow, kRow);
  for (int i = 0; i < 3; ++i) add(kRows * kRow + static_cast<std::size_t>(i) * kLarge, kLarge);
  const long long before = simcuda_value("pageable_bytes") + simcuda_value("pinned_bytes");
  ASSERT_EQ(cistern_transfer_hold(transfer, 0), CISTERN_OK);
  ASSERT_EQ(cistern_transfer_wait(transfer, 60), CISTERN_OK);
  EXPECT_EQ(simcuda_value("pageable_bytes") + simcuda_value("pinned_bytes") - before,
            static_cast<long long>(sent.size()));
  EXPECT_EQ(figures(transfer).merged, kRows - 1);
  EXPECT_EQ(figures(transfer).done, kRows + 3);
  EXPECT_EQ(figures(transfer).bytes_done, sent.size());
  for (std::size_t i = 0; i < told.ended.size(); ++i) EXPECT_EQ(told.ended[i].copy, i + 1);
  demand(cistern_copy(received.data(), there, sent.size(), 0, nullptr));
  EXPECT_EQ(sent, received);
  EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
}

TEST_F(CudaTransfers, BeginByPriority) {
  Told told;
  cistern_transfer* const transfer = make(settings(1, &told));
  ASSERT_EQ(cistern_transfer_hold(transfer, 1), CISTERN_OK);
  std::vector<unsigned char> bytes(1000);
  void* const there = on_device(bytes.size());
  for (const int priority : {0, 5, -3, 5, 100, 0}) {
    const cistern_copy_request of = copy(there, bytes.data(), bytes.size(), priority);
    ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
  }
  EXPECT_EQ(cistern_transfer_wait(transfer, 0.05), CISTERN_BUSY) << "held";
  EXPECT_EQ(figures(transfer).waiting, 6u);
  ASSERT_EQ(cistern_transfer_hold(transfer, 0), CISTERN_OK);
  ASSERT_EQ(cistern_transfer_wait(transfer, 60), CISTERN_OK);
  std::vector<std::uint64_t> order;
  for (const Ended& one : told.ended) order.push_back(one.copy);
  EXPECT_EQ(order, (std::vector<std::uint64_t>{5, 2, 4, 1, 6, 3}));
  EXPECT_EQ(figures(transfer).running_at_once, 1u);
  EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
}

TEST_F(CudaTransfers, RunAsManyAtOnceAsTheyMay) {
  for (const unsigned at_once : {1u, 3u}) {
    cistern_transfer* const transfer = make(settings(at_once));
    simcuda_set_value("link_to_device_mbps", 20);  // 1 MB: 50 ms
    std::vector<unsigned char> bytes(1'000'000);
    for (unsigned i = 0; i < 6; ++i) {
      const cistern_copy_request of = copy(on_device(bytes.size()), bytes.data(), bytes.size());
      ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
    }
    ASSERT_EQ(cistern_transfer_wait(transfer, 60), CISTERN_OK);
    EXPECT_EQ(figures(transfer).running_at_once, at_once);
    EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
  }
}

// What fails is tried again; what fails for good is told once, with the driver's code, and the rest arrives.
TEST_F(CudaTransfers, TryAgainAndTellWhatFailed) {
  cistern_transfer_settings of = settings(2);
  of.retries = 20;
  cistern_transfer* const patient = make(of);
  of.retries = 0;
  cistern_transfer* const impatient = make(of);
  const std::vector<unsigned char> sent = pattern(50'000, 3);
  std::vector<void*> there;
  for (unsigned i = 0; i < 40; ++i) there.push_back(on_device(sent.size()));
  simcuda_set_value("fail_every", 7);
  for (unsigned i = 0; i < 40; ++i) {
    const cistern_copy_request request = copy(there[i], sent.data(), sent.size());
    ASSERT_EQ(cistern_transfer_add(i % 2 ? patient : impatient, &request, nullptr), CISTERN_OK);
  }
  EXPECT_EQ(cistern_transfer_wait(patient, 60), CISTERN_OK);
  EXPECT_EQ(cistern_transfer_wait(impatient, 60), CISTERN_DRIVER);
  simcuda_set_value("fail_every", 0);
  EXPECT_EQ(figures(patient).done, 20u);
  EXPECT_GT(figures(patient).retried, 0u);
  const cistern_transfer_statistics seen = figures(impatient);
  EXPECT_GT(seen.failed, 0u);
  EXPECT_EQ(seen.done + seen.failed, 20u);
  EXPECT_EQ(seen.bytes_done, seen.done * sent.size());
  EXPECT_EQ(seen.retried, 0u);
  std::uint64_t number = 0, failed = 0;
  cistern_status status = CISTERN_OK;
  int code = 0;
  while (cistern_transfer_next_failed(impatient, &number, &status, &code) == CISTERN_OK) {
    ++failed;
    EXPECT_TRUE(status == CISTERN_DRIVER || status == CISTERN_NO_MEMORY) << status;
    EXPECT_NE(code, 0);
    EXPECT_LE(number, 20u);
  }
  EXPECT_EQ(failed, seen.failed);
  EXPECT_EQ(cistern_transfer_wait(impatient, 1), CISTERN_OK) << "nothing that was not told";
  // A wrong argument is not tried again.
  cistern_copy_request wrong = copy(there[0], sent.data(), std::size_t{1} << 50);
  ASSERT_EQ(cistern_transfer_add(patient, &wrong, nullptr), CISTERN_OK);
  const std::uint64_t retried = figures(patient).retried;
  EXPECT_EQ(cistern_transfer_wait(patient, 60), CISTERN_DRIVER);
  EXPECT_EQ(cistern_transfer_next_failed(patient, nullptr, nullptr, &code), CISTERN_OK);
  EXPECT_EQ(code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(figures(patient).retried, retried);
  EXPECT_EQ(cistern_transfer_destroy(patient), CISTERN_OK);
  EXPECT_EQ(cistern_transfer_destroy(impatient), CISTERN_OK);
}

// Many threads add while others end theirs; a callback adds more.
TEST_F(CudaTransfers, StandManyThreads) {
  if (kEndsEarly) GTEST_SKIP() << kGone;
  struct Chain {
    std::atomic<int> left{50};
    cistern_copy_request next;
  } chain;
  std::vector<unsigned char> bytes(4000);
  chain.next = copy(on_device(bytes.size()), bytes.data(), bytes.size());
  cistern_transfer_settings of = settings(3);
  of.user = &chain;
  of.done = [](cistern_transfer* transfer, std::uint64_t, cistern_status status, int, void* user) {
    Chain& chain = *static_cast<Chain*>(user);
    EXPECT_EQ(status, CISTERN_OK);
    EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_BUSY);
    EXPECT_EQ(cistern_transfer_wait(transfer, 1), CISTERN_BUSY);
    if (chain.left-- > 0) EXPECT_EQ(cistern_transfer_add(transfer, &chain.next, nullptr), CISTERN_OK);
  };
  cistern_transfer* const shared = make(of);
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < 4; ++id)
    threads.emplace_back([&] {
      make_cuda_current();
      for (unsigned i = 0; i < 50; ++i) {
        EXPECT_EQ(cistern_transfer_add(shared, &chain.next, nullptr), CISTERN_OK);
        cistern_transfer* const own = make(settings(2));
        EXPECT_EQ(cistern_transfer_add(own, &chain.next, nullptr), CISTERN_OK);
        EXPECT_EQ(cistern_transfer_destroy(own), CISTERN_OK);
      }
    });
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(cistern_transfer_wait(shared, 60), CISTERN_OK);
  EXPECT_EQ(figures(shared).done, 250u);
  EXPECT_EQ(cistern_transfer_destroy(shared), CISTERN_OK);
}

// A child has neither the threads nor the copies; the parent's go on.
TEST_F(CudaTransfers, StayWithTheParent) {
  if (kEndsEarly) GTEST_SKIP() << kGone;
  cistern_transfer* const transfer = make(settings(2));
  simcuda_set_value("link_to_device_mbps", 50);
  std::vector<unsigned char> bytes(500'000);
  for (unsigned i = 0; i < 20; ++i) {
    const cistern_copy_request of = copy(on_device(bytes.size()), bytes.data(), bytes.size());
    ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
    if (i % 4) continue;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (!child) {
      const bool refused = cistern_transfer_wait(transfer, -1) == CISTERN_INVALID &&
                           cistern_transfer_add(transfer, &of, nullptr) == CISTERN_INVALID &&
                           cistern_transfer_destroy(transfer) == CISTERN_OK;
      cistern_transfer* another = nullptr;
      const cistern_transfer_settings own = settings(1);
      const bool made = cistern_transfer_create(&own, &another) == CISTERN_OK &&
                        cistern_transfer_wait(another, 1) == CISTERN_OK &&
                        cistern_transfer_destroy(another) == CISTERN_OK;
      _exit(refused && made ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  ASSERT_EQ(cistern_transfer_wait(transfer, 60), CISTERN_OK);
  EXPECT_EQ(figures(transfer).done, 20u);
  EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
}

// Those that wait are dropped, and done() is not told of them.
TEST_F(CudaTransfers, AreDestroyedWithCopiesThatWait) {
  Told told;
  cistern_transfer* const transfer = make(settings(1, &told));
  simcuda_set_value("link_to_device_mbps", 20);
  std::vector<unsigned char> bytes(1'000'000);
  void* const there = on_device(bytes.size());
  for (unsigned i = 0; i < 20; ++i) {
    const cistern_copy_request of = copy(there, bytes.data(), bytes.size());
    ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
  }
  EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
  EXPECT_LT(told.ended.size(), 20u);
}

TEST(Transfers, CopyBuffersOfOpencl) {
  ASSERT_NE(opencl_context(), nullptr);
  cl_device_id device = nullptr;
  clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
  cl_command_queue const queue = clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr);
  cl_mem buffer = nullptr;
  ASSERT_EQ(cistern_opencl_allocate(opencl_context(), CL_MEM_READ_WRITE, kMiB, &buffer), CISTERN_OK);
  cistern_transfer* const transfer = make(settings(2));
  const std::vector<unsigned char> sent = pattern(kMiB / 2, 9);
  std::vector<unsigned char> received(sent.size());
  cistern_copy_request of{};
  of.struct_bytes = sizeof of;
  of.bytes = sent.size();
  of.queue = reinterpret_cast<_cl_command_queue*>(queue);
  of.buffer = reinterpret_cast<_cl_mem*>(buffer);
  of.offset = 4096;
  of.to_device = 1;
  of.host = const_cast<unsigned char*>(sent.data());
  ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
  ASSERT_EQ(cistern_transfer_wait(transfer, 60), CISTERN_OK);
  of.to_device = 0;
  of.host = received.data();
  ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
  ASSERT_EQ(cistern_transfer_wait(transfer, 60), CISTERN_OK);
  EXPECT_EQ(sent, received);
  of.offset = kMiB;  // beyond the buffer
  ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_transfer_wait(transfer, 60), CISTERN_DRIVER);
  int code = 0;
  EXPECT_EQ(cistern_transfer_next_failed(transfer, nullptr, nullptr, &code), CISTERN_OK);
  EXPECT_EQ(code, CL_INVALID_VALUE);
  EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
  clReleaseMemObject(buffer);
  clReleaseCommandQueue(queue);
}

// Each of these reads what the one before has written.
TEST_F(CudaTransfers, OfWhichOneReadsWhatAnotherWritesAreNotMerged) {
  cistern_transfer* const transfer = make(settings(1));
  constexpr std::size_t kRow = 1024, kRows = 8;
  auto* const there = static_cast<char*>(on_device(kRow * (kRows + 1)));
  std::vector<unsigned char> rows(kRow * (kRows + 1));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<unsigned char>(i / kRow);
  demand(cistern_copy(there, rows.data(), rows.size(), 0, nullptr));
  ASSERT_EQ(cistern_transfer_hold(transfer, 1), CISTERN_OK);
  for (std::size_t row = 0; row < kRows; ++row) {
    const cistern_copy_request of = copy(there + (row + 1) * kRow, there + row * kRow, kRow);
    ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
  }
  ASSERT_EQ(cistern_transfer_hold(transfer, 0), CISTERN_OK);
  ASSERT_EQ(cistern_transfer_wait(transfer, 60), CISTERN_OK);
  EXPECT_EQ(figures(transfer).merged, 0u);
  demand(cistern_copy(rows.data(), there, rows.size(), 0, nullptr));
  EXPECT_EQ(rows, std::vector<unsigned char>(rows.size(), 0));
  EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
}

// Where the merged copy fails each is made by itself, and only those fail which would have.
TEST(Transfers, OfMergedOnesTheWrongOnesFailAlone) {
  ASSERT_NE(opencl_context(), nullptr);
  cl_device_id device = nullptr;
  clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
  cl_command_queue const queue = clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr);
  constexpr std::size_t kRow = 1024, kRows = 4;
  cl_mem const buffer = clCreateBuffer(opencl_context(), CL_MEM_READ_WRITE, kRows * kRow, nullptr, nullptr);
  for (const std::size_t rows : {kRows, 2 * kRows}) {  // the last four lie behind the buffer's end
    cistern_transfer* const transfer = make(settings(1));
    const std::vector<unsigned char> sent = pattern(rows * kRow, static_cast<unsigned>(rows));
    ASSERT_EQ(cistern_transfer_hold(transfer, 1), CISTERN_OK);
    for (std::size_t row = 0; row < rows; ++row) {
      cistern_copy_request of{};
      of.struct_bytes = sizeof of;
      of.bytes = kRow;
      of.queue = reinterpret_cast<_cl_command_queue*>(queue);
      of.buffer = reinterpret_cast<_cl_mem*>(buffer);
      of.offset = row * kRow;
      of.to_device = 1;
      of.host = const_cast<unsigned char*>(&sent[row * kRow]);
      ASSERT_EQ(cistern_transfer_add(transfer, &of, nullptr), CISTERN_OK);
    }
    ASSERT_EQ(cistern_transfer_hold(transfer, 0), CISTERN_OK);
    EXPECT_EQ(cistern_transfer_wait(transfer, 60), rows == kRows ? CISTERN_OK : CISTERN_DRIVER);
    EXPECT_EQ(figures(transfer).merged, rows == kRows ? kRows - 1 : 0u);
    EXPECT_EQ(figures(transfer).done, kRows);
    EXPECT_EQ(figures(transfer).failed, rows - kRows);
    std::vector<unsigned char> received(kRows * kRow);
    clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, received.size(), received.data(), 0, nullptr, nullptr);
    EXPECT_TRUE(std::equal(received.begin(), received.end(), sent.begin()));
    EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
  }
  clReleaseMemObject(buffer);
  clReleaseCommandQueue(queue);
}

TEST(Transfers, RefuseWrongArguments) {
  cistern_transfer* transfer = nullptr;
  cistern_transfer_settings of = settings(65);
  EXPECT_EQ(cistern_transfer_create(&of, &transfer), CISTERN_INVALID);
  EXPECT_EQ(cistern_transfer_create(nullptr, &transfer), CISTERN_INVALID);
  of = settings(0);
  EXPECT_EQ(cistern_transfer_create(&of, nullptr), CISTERN_INVALID);
  of.struct_bytes = 4;
  EXPECT_EQ(cistern_transfer_create(&of, &transfer), CISTERN_INVALID);
  EXPECT_EQ(transfer, nullptr);
  transfer = make(settings(0));
  int here = 0;
  cistern_copy_request request = copy(&here, &here, 0);
  EXPECT_EQ(cistern_transfer_add(transfer, &request, nullptr), CISTERN_INVALID);
  request = copy(nullptr, &here, 4);
  EXPECT_EQ(cistern_transfer_add(transfer, &request, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_transfer_add(transfer, nullptr, nullptr), CISTERN_INVALID);
  request = copy(nullptr, nullptr, 4);
  request.buffer = reinterpret_cast<_cl_mem*>(&here);
  EXPECT_EQ(cistern_transfer_add(transfer, &request, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_transfer_wait(transfer, 0), CISTERN_OK);
  EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
  char handle[32];
  snprintf(handle, sizeof handle, "%p", static_cast<void*>(transfer));
  Captured said;
  EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_INVALID);
  EXPECT_EQ(cistern_transfer_wait(nullptr, 0), CISTERN_INVALID);
  EXPECT_EQ(said.text(), "cistern: cistern_transfer_destroy(" + std::string(handle) +
                             "): no transfer, or destroyed already; refused\n"
                             "cistern: cistern_transfer_wait(0x0): no transfer, or destroyed already; refused\n");
}

}  // namespace
