// Unified buffers: the table of states, and random steps beside a model, with streams that run late, several threads,
// and a driver that fails.
//
// UNIFIED_TEST_STEPS=10000000 makes as many steps as that of each random test.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cistern/unified_buffer.hpp>
#include <mutex>
#include <random>
#include <thread>

#include "tests/library/kinds.hpp"
#include "tests/library/unified_model.hpp"
#include "tests/simcuda/simcuda.h"

namespace {

std::uint64_t steps_of(std::uint64_t usually) {
  const char* const text = getenv("UNIFIED_TEST_STEPS");
  return text ? strtoull(text, nullptr, 10) : usually;
}

void* driver_function(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return driver ? dlsym(driver, name) : nullptr;
}

void* new_stream() {
  CUstream stream = nullptr;
  auto* const create = reinterpret_cast<decltype(&cuStreamCreate)>(driver_function("cuStreamCreate"));
  EXPECT_EQ(create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  return stream;
}

cl_command_queue new_queue() {
  cl_device_id device = nullptr;
  clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
  return clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr);
}

class UnifiedTest : public testing::TestWithParam<cistern_kind> {
 protected:
  void SetUp() override {
    if (GetParam() == CISTERN_DEVICE && !make_cuda_current()) GTEST_SKIP() << "no simulated driver";
    if (GetParam() == CISTERN_OPENCL) ASSERT_TRUE(opencl_context());
    for (int i = 0; i < 3; ++i) queues_.push_back(GetParam() == CISTERN_DEVICE ? new_stream() : new_queue());
  }
  void TearDown() override {
    for (void* const queue : queues_) {
      if (GetParam() == CISTERN_OPENCL) clReleaseCommandQueue(static_cast<cl_command_queue>(queue));
      if (GetParam() == CISTERN_DEVICE)
        reinterpret_cast<decltype(&cuStreamDestroy)>(driver_function("cuStreamDestroy_v2"))(
            static_cast<CUstream>(queue));
    }
  }
  UnifiedWorld world() const {
    UnifiedWorld of;
    of.settings.kind = GetParam();
    of.queues = queues_;
    if (GetParam() == CISTERN_OPENCL) {
      of.settings.context = reinterpret_cast<_cl_context*>(opencl_context());
      of.settings.queue = queues_[0];
      of.take_late = [](std::size_t bytes) { return malloc(bytes); };
    } else {
      of.queues.push_back(nullptr);
      of.take_late = [](std::size_t bytes) {
        void* block = nullptr;
        demand(cistern_pool_allocate(cistern_pool_default(CISTERN_PINNED), bytes, 0, &block));
        return block;
      };
      of.let_fail = [](bool fails) { simcuda_set_value("fail_every", fails ? 7 : 0); };
    }
    return of;
  }
  cistern::place place() const {
    if (GetParam() == CISTERN_DEVICE) return cistern::on_device();
    return cistern::on_opencl(reinterpret_cast<_cl_context*>(opencl_context()),
                              static_cast<_cl_command_queue*>(queues_[0]));
  }
  cistern::stream queue(unsigned i) const {
    if (GetParam() == CISTERN_DEVICE) return static_cast<CUstream_st*>(queues_[i]);
    return static_cast<_cl_command_queue*>(queues_[i]);
  }
  std::vector<void*> queues_;
};

UnifiedModel::Number numbers(unsigned seed) {
  return [random = std::mt19937(seed)](std::uint32_t below) mutable {
    return static_cast<std::uint32_t>(std::uint64_t{random()} * below >> 32);
  };
}

TEST_P(UnifiedTest, StepsBesideAModel) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  fprintf(stderr, "seed %u\n", seed);
  UnifiedModel model(world(), numbers(seed));
  const std::uint64_t steps = steps_of(GetParam() == CISTERN_DEVICE ? 200'000 : 20'000);
  for (std::uint64_t i = 0; i < steps; ++i) model.step();
  model.check_all();
  EXPECT_GT(model.refused(), steps / 1000);
}

// Both on one buffer: whoever is between an answer and the work that it was for has it alone.
TEST_P(UnifiedTest, StepsOfTwoThreadsWithStreamsThatRunLate) {
  const unsigned seed = std::random_device{}();
  fprintf(stderr, "seed %u\n", seed);
  UnifiedModel model(world(), numbers(seed));
  std::mutex turn;
  const std::uint64_t steps = steps_of(20'000);
  const auto run = [&] {
    for (std::uint64_t i = 0; i < steps / 2; ++i) {
      if (i % 1000 == 0) simcuda_set_value("stream_delay_us", i % 5000 ? 0 : 20);
      const std::lock_guard<std::mutex> hold(turn);
      model.step();
    }
  };
  std::thread one(run), other(run);
  one.join();
  other.join();
  simcuda_set_value("stream_delay_us", 0);
  model.check_all();
}

TEST_P(UnifiedTest, NothingIsLostWhereTheDriverFails) {
  if (GetParam() != CISTERN_DEVICE) GTEST_SKIP() << "the layer's failures are in failures_test.cpp";
  const unsigned seed = std::random_device{}();
  fprintf(stderr, "seed %u\n", seed);
  UnifiedWorld failing = world();
  failing.may_fail = true;
  UnifiedModel model(failing, numbers(seed));
  const std::uint64_t steps = steps_of(50'000);
  for (std::uint64_t i = 0; i < steps; ++i) model.step();
  failing.let_fail(false);
  model.check_all();
  EXPECT_GT(model.failed(), steps / 100);
}

INSTANTIATE_TEST_SUITE_P(Kinds, UnifiedTest, testing::Values(CISTERN_OPENCL, CISTERN_DEVICE), name_of_kind);

}  // namespace
