// Sources that fail: each OpenCL call in turn (failing_layer.cpp), and a system that has no more memory. (CUDA's calls:
// pools_test.cpp, devices_test.cpp.) Accounts stay those of the blocks that are there.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cistern/mapped_file.hpp>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/library/kinds.hpp"
#include "tests/library/unified_model.hpp"

namespace {

void fail_every(unsigned n) {
  static auto* const ask = [] {
    const char* const path = getenv("OPENCL_LAYERS");
    void* const layer = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    return layer ? reinterpret_cast<void (*)(unsigned)>(dlsym(layer, "failing_layer_every")) : nullptr;
  }();
  ASSERT_NE(ask, nullptr) << "no layer";
  ask(n);
}

cistern_pool* pool_of(cistern_kind kind, cl_context context) {
  cistern_pool_settings of{};
  of.struct_bytes = sizeof of;
  of.kind = kind;
  of.context = reinterpret_cast<_cl_context*>(context);
  of.flags = context ? CL_MEM_READ_WRITE : 0;
  cistern_pool* pool = nullptr;
  EXPECT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
  return pool;
}

TEST(Failures, OfOpenclLeaveAccountsRight) {
  ASSERT_NE(opencl_context(), nullptr);
  cl_device_id device = nullptr;
  clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
  cl_command_queue const queue = clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr);
  cistern_pool* const pool = pool_of(CISTERN_OPENCL, opencl_context());
  unsigned failed = 0;
  for (unsigned every = 1; every <= 30; ++every) {
    std::vector<void*> blocks;
    fail_every(every);
    for (unsigned i = 0; i < 8; ++i) {
      void* block = nullptr;
      const cistern_status status = cistern_pool_allocate(pool, (i + 1 + every) * 50'000, 0, &block);
      EXPECT_TRUE(status == CISTERN_OK || status == CISTERN_NO_MEMORY) << status;
      EXPECT_EQ(block != nullptr, status == CISTERN_OK);
      failed += status != CISTERN_OK;
      if (status == CISTERN_NO_MEMORY) EXPECT_EQ(cistern_native_error(), CL_MEM_OBJECT_ALLOCATION_FAILURE);
      if (block) blocks.push_back(block);
    }
    for (void*& block : blocks) {
      void* const before = block;
      const cistern_status status = cistern_pool_reallocate(pool, &block, 30'000 * every, queue);
      failed += status != CISTERN_OK;
      if (status != CISTERN_OK) EXPECT_EQ(block, before);
    }
    for (void*& block : blocks)
      if (cistern_pool_deallocate(pool, block, queue) == CISTERN_OK) block = nullptr;
    fail_every(0);
    for (void* const block : blocks) EXPECT_EQ(cistern_pool_deallocate(pool, block, queue), CISTERN_OK);
    cistern_trim(CISTERN_OPENCL, 0, nullptr);
  }
  auto seen = cistern::sized<cistern_pool_statistics>();
  cistern_pool_get_statistics(pool, &seen);
  EXPECT_EQ(seen.live_blocks, 0u) << "what could not be resized is neither there twice nor gone";
  EXPECT_EQ(seen.live_bytes, 0u);
  EXPECT_GT(failed, 20u);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  clReleaseCommandQueue(queue);
}

TEST(Failures, OfOpenclLoseNothingOfUnifiedBuffers) {
  ASSERT_NE(opencl_context(), nullptr);
  const unsigned seed = std::random_device{}();
  fprintf(stderr, "seed %u\n", seed);
  cl_device_id device = nullptr;
  clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
  UnifiedWorld world;
  world.settings.kind = CISTERN_OPENCL;
  world.settings.context = reinterpret_cast<_cl_context*>(opencl_context());
  for (int i = 0; i < 2; ++i)
    world.queues.push_back(clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr));
  world.settings.queue = world.queues[0];
  world.take_late = take_plain;
  world.may_fail = true;
  world.let_fail = [](bool fails) { fail_every(fails ? 5 : 0); };
  {
    UnifiedModel model(world, [random = std::mt19937(seed)](std::uint32_t below) mutable {
      return static_cast<std::uint32_t>(std::uint64_t{random()} * below >> 32);
    });
    for (int i = 0; i < 20'000; ++i) model.step();
    world.let_fail(false);
    model.check_all();
    EXPECT_GT(model.failed(), 100u);
  }
  for (void* const queue : world.queues) clReleaseCommandQueue(static_cast<cl_command_queue>(queue));
}

TEST(Failures, OfOpenclLoseNothingOfMappedFiles) {
  ASSERT_NE(opencl_context(), nullptr);
  constexpr std::size_t kCount = 20'000, kEach = 1000;
  constexpr unsigned kTries = 3;
  cl_device_id device = nullptr;
  clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
  cl_command_queue const queue = clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr);
  const auto where =
      cistern::on_opencl(reinterpret_cast<_cl_context*>(opencl_context()), reinterpret_cast<_cl_command_queue*>(queue));
  for (unsigned every = 2; every < 40; ++every) {
    char path[] = "/tmp/cistern-failures-XXXXXX";
    const int file_of_numbers = mkstemp(path);
    std::vector<int> model(kCount), seen(kCount);
    std::iota(model.begin(), model.end(), 0);
    const auto bytes = static_cast<ssize_t>(kCount * sizeof(int));
    ASSERT_EQ(write(file_of_numbers, model.data(), kCount * sizeof(int)), bytes);
    cistern::mapped_options options;
    options.chunk_bytes = kEach * sizeof(int);
    options.writable = true;
    auto file = cistern::mapped_file<int>::open(path, where, options).value();
    unsigned failed = 0;
    for (std::uint64_t i = 0; i < file.chunks(); ++i) {
      fail_every(every);
      auto chunk = file.acquire_mut(i);
      fail_every(0);
      failed += !chunk;
      if (!chunk) continue;
      const cistern_part first{sizeof(cistern_part), CISTERN_OPENCL, chunk->memory_object(), 0};
      const int value = static_cast<int>(i);
      demand(cistern_enqueue_fill(&first, &value, sizeof value, 10 * sizeof value, 0, queue));
      std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(i * kEach), 10, value);
      fail_every(every);
      for (unsigned tries = 0; !chunk->release(); ++tries, ++failed)
        if (tries == kTries) fail_every(0);
    }
    for (unsigned tries = 0; !file.close(); ++tries, ++failed)
      if (tries == kTries) fail_every(0);
    fail_every(0);
    EXPECT_EQ(pread(file_of_numbers, seen.data(), kCount * sizeof(int), 0), bytes);
    EXPECT_EQ(seen, model) << every;
    if (every < 10) EXPECT_GT(failed, 0u) << every;
    close(file_of_numbers);
    unlink(path);
  }
  clReleaseCommandQueue(queue);
}

// In a child, whose memory is limited for good.
void run_out_of_memory() {
  cistern_pool* const pool = pool_of(CISTERN_HOST, nullptr);
  void* first = nullptr;
  if (cistern_pool_allocate(pool, 1000, 0, &first)) _exit(1);
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  long pages = 0;
  FILE* const sizes = fopen("/proc/self/statm", "r");
  if (!sizes || fscanf(sizes, "%ld", &pages) != 1) _exit(2);
  fclose(sizes);
  limit.rlim_cur = static_cast<rlim_t>(pages) * 4096 + 64 * kMiB;
  setrlimit(RLIMIT_AS, &limit);
  std::vector<void*> blocks;
  blocks.reserve(100'000);
  std::uint64_t bytes = 0;
  for (std::size_t wanted = 8 * kMiB; wanted >= 4096; wanted /= 2)
    for (void* block = nullptr;; bytes += wanted, blocks.push_back(block)) {
      const cistern_status status = cistern_pool_allocate(pool, wanted, 0, &block);
      if (status == CISTERN_OK && blocks.size() < blocks.capacity()) continue;
      if (status != CISTERN_NO_MEMORY) _exit(3);
      break;
    }
  auto seen = cistern::sized<cistern_pool_statistics>();
  cistern_pool_get_statistics(pool, &seen);
  if (seen.live_bytes != bytes + 1000 || seen.live_blocks != blocks.size() + 1 || !seen.failed) _exit(4);
  void* larger = first;
  if (cistern_pool_reallocate(pool, &larger, 512 * kMiB, nullptr) != CISTERN_NO_MEMORY || larger != first) _exit(5);
  if (cistern_reallocate(nullptr, 512 * kMiB)) _exit(6);
  for (void* const block : blocks)
    if (cistern_pool_deallocate(pool, block, nullptr)) _exit(7);
  if (cistern_pool_allocate(pool, 8 * kMiB, 0, &blocks[0])) _exit(8);  // what came free serves
  _exit(0);
}

TEST(Failures, OfTheSystemLeaveAccountsRight) {
  if (!kHostPoolServes) GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (!child) run_out_of_memory();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "exit code " << WEXITSTATUS(status);
}

}  // namespace
