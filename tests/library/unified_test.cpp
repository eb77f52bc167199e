// Unified buffers: the table of states, and random steps beside a model, with streams that run late, several threads,
// and a driver that fails.
//
// UNIFIED_TEST_STEPS=10000000 makes as many steps as that of each random test.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cistern/double_buffer.hpp>
#include <cistern/unified_buffer.hpp>
#include <deque>
#include <mutex>
#include <random>

#include "tests/library/captured.hpp"
#include "tests/library/kinds.hpp"
#include "tests/library/unified_model.hpp"
#include "tests/simcuda/simcuda.h"

namespace {

#ifdef __SANITIZE_THREAD__
constexpr bool kIsSlow = true;  // ten times
#else
constexpr bool kIsSlow = false;
#endif

std::uint64_t steps_of(std::uint64_t usually) {
  const char* const text = getenv("UNIFIED_TEST_STEPS");
  return text ? strtoull(text, nullptr, 10) : kIsSlow ? usually / 10 : usually;
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
      of.take_late = take_plain;
    } else {
      of.queues.push_back(nullptr);
      of.take_late = [](std::size_t bytes) {
        void* block = nullptr;
        demand(cistern_pool_allocate(cistern::default_pool(CISTERN_PINNED), bytes, 0, &block));
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
  Beside one(run), other(run);
  one.join();
  other.join();
  simcuda_set_value("stream_delay_us", 0);
  model.check_all();
}

TEST_P(UnifiedTest, NothingIsLostWhereTheDriverFails) {
  if (GetParam() != CISTERN_DEVICE) GTEST_SKIP() << "OpenCL's calls fail in failures_test.cpp";
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

// --- The table, line by line
using cistern::unified_buffer;
using cistern::unified_options;

enum class Do {
  host,
  host_mut,
  host_overwrite,
  device,
  device_mut,
  device_overwrite,
  synchronize,
  mark_host,
  mark_device,
  fill,
  drop_host,
  drop_device
};
constexpr cistern_state kNone = CISTERN_UNINITIALISED, kHost = CISTERN_HOST_ONLY, kDevice = CISTERN_DEVICE_ONLY,
                        kBoth = CISTERN_SYNCHRONISED, kHostDirty = CISTERN_HOST_DIRTY,
                        kDeviceDirty = CISTERN_DEVICE_DIRTY;

cistern_status act(unified_buffer<int>& on, Do what, cistern::stream queue) {
  switch (what) {
    case Do::host:
      return on.host().status();
    case Do::host_mut:
      return on.host_mut().status();
    case Do::host_overwrite:
      return on.host_overwrite().status();
    case Do::device:
      return on.device(queue).status();
    case Do::device_mut:
      return on.device_mut(queue).status();
    case Do::device_overwrite:
      return on.device_overwrite(queue).status();
    case Do::synchronize:
      return on.synchronize(queue).status();
    case Do::mark_host:
      return on.mark_host_dirty().status();
    case Do::mark_device:
      return on.mark_device_dirty().status();
    case Do::fill:
      return on.fill(7, queue).status();
    case Do::drop_host:
      return on.drop_host().status();
    case Do::drop_device:
      return on.drop_device().status();
  }
  return CISTERN_INVALID;
}

TEST_P(UnifiedTest, ChangesAsTheTableSays) {
  const auto in_state = [&](cistern_state state) {
    auto made = unified_buffer<int>::make(100, place()).value();
    const auto also = [&](Do what) { EXPECT_EQ(act(made, what, queue(0)), CISTERN_OK); };
    if (state != kNone) also(Do::host_mut);
    if (state == kDevice) also(Do::synchronize), also(Do::drop_host);
    if (state == kBoth || state == kHostDirty || state == kDeviceDirty) also(Do::synchronize);
    if (state == kHostDirty) also(Do::host_mut);
    if (state == kDeviceDirty) also(Do::device_mut);
    EXPECT_EQ(made.state(), state);
    return made;
  };
  struct Line {
    Do what;
    // From uninitialised, host only, device only, synchronised, host dirty, device dirty: the state then, or an error.
    int then[6];
  };
  constexpr int kEmpty = -CISTERN_EMPTY, kConflict = -CISTERN_CONFLICT;
  constexpr Line kTable[] = {
      {Do::host, {kEmpty, kHost, kBoth, kBoth, kHostDirty, kBoth}},
      {Do::host_mut, {kHost, kHost, kHostDirty, kHostDirty, kHostDirty, kHostDirty}},
      {Do::host_overwrite, {kHost, kHost, kHostDirty, kHostDirty, kHostDirty, kHostDirty}},
      {Do::device, {kEmpty, kBoth, kDevice, kBoth, kBoth, kDeviceDirty}},
      {Do::device_mut, {kDeviceDirty, kDeviceDirty, kDevice, kDeviceDirty, kDeviceDirty, kDeviceDirty}},
      {Do::device_overwrite, {kDeviceDirty, kDeviceDirty, kDevice, kDeviceDirty, kDeviceDirty, kDeviceDirty}},
      {Do::synchronize, {kEmpty, kBoth, kBoth, kBoth, kBoth, kBoth}},
      {Do::mark_host, {kEmpty, kHost, kConflict, kHostDirty, kHostDirty, kConflict}},
      {Do::mark_device, {kEmpty, kConflict, kDevice, kDeviceDirty, kConflict, kDeviceDirty}},
      {Do::fill, {kDevice, kDevice, kDevice, kDevice, kConflict, kDevice}},
      {Do::drop_host, {kEmpty, kConflict, kDevice, kDevice, kConflict, kDevice}},
      {Do::drop_device, {kEmpty, kHost, kConflict, kHost, kHost, kConflict}},
  };
  for (const Line& line : kTable)
    for (const cistern_state from : {kNone, kHost, kDevice, kBoth, kHostDirty, kDeviceDirty}) {
      auto made = in_state(from);
      const int then = line.then[from];
      const cistern_status status = act(made, line.what, queue(0));
      EXPECT_EQ(status, then < 0 ? -then : CISTERN_OK) << static_cast<int>(line.what) << " from " << from;
      EXPECT_EQ(made.state(), then < 0 ? from : then) << static_cast<int>(line.what) << " from " << from;
    }
}

TEST_P(UnifiedTest, PartsMoveAlone) {
  auto made = unified_buffer<int>::make(1000, place()).value();
  std::ignore = made.host_overwrite().value();
  ASSERT_TRUE(made.device(queue(0), {100, 50}));
  EXPECT_EQ(made.state(), CISTERN_HOST_DIRTY);
  EXPECT_EQ(made.metrics().bytes_to_device, 200u);
  EXPECT_EQ(made.next_dirty().value().count, 100u);
  EXPECT_EQ(made.next_dirty(100).value().first, 150u);
  EXPECT_EQ(made.next_dirty((SIZE_MAX >> 2) + 1).status(), CISTERN_EMPTY);
  ASSERT_TRUE(made.synchronize(queue(0)));
  EXPECT_EQ(made.metrics().bytes_to_device, 4000u);
  EXPECT_EQ(made.next_dirty().status(), CISTERN_EMPTY);
  ASSERT_TRUE(made.host_mut({10, 5}));
  ASSERT_TRUE(made.host_mut({12, 10}));
  ASSERT_TRUE(made.host_mut({900, 100}));
  ASSERT_TRUE(made.device(queue(1)));
  EXPECT_EQ(made.metrics().bytes_to_device, 4000u + 12 * 4 + 400u);
  EXPECT_EQ(made.metrics().copies_to_device, 5u);
  ASSERT_TRUE(made.device_mut(queue(1), {500, 1}));
  ASSERT_TRUE(made.host({0, 500}));
  EXPECT_EQ(made.metrics().bytes_to_host, 0u);
  ASSERT_TRUE(made.host({500, 2}));
  EXPECT_EQ(made.metrics().bytes_to_host, 4u);
  EXPECT_EQ(made.state(), CISTERN_SYNCHRONISED);
  const cistern_unified_metrics seen = made.metrics();
  EXPECT_EQ(seen.accesses, 10u);
  EXPECT_EQ(seen.hits, 6u);
  EXPECT_DOUBLE_EQ(seen.hit_rate, 0.6);
  EXPECT_GT(seen.last_access_seconds, 0);
  EXPECT_EQ(made.host({999, 2}).status(), CISTERN_BOUNDS);
  EXPECT_STREQ(made.device_mut(queue(0), {1001, 0}).why().call, "unified_buffer::device_mut");
}

TEST_P(UnifiedTest, LargeCopiesAreMeasured) {
  auto made = unified_buffer<char>::make(8 << 20, place()).value();
  ASSERT_TRUE(made.fill(3, queue(0)));
  EXPECT_EQ(made.metrics().seconds, 0);
  EXPECT_EQ(made.host().value()[(8 << 20) - 1], 3);
  EXPECT_GT(made.metrics().seconds, 0);
  EXPECT_NEAR(made.metrics().bytes_per_second * made.metrics().seconds, 8 << 20, 1);
}

TEST_P(UnifiedTest, OneWriterAtATime) {
  auto made = unified_buffer<int>::make(10, place(), {.checked = true}).value();
  {
    auto writes = made.host_mut().value();
    writes[3] = 4;
    EXPECT_EQ(made.host_mut().status(), CISTERN_BUSY);
    EXPECT_EQ(made.device(queue(0)).status(), CISTERN_BUSY);
    auto moved = std::move(writes);
    EXPECT_EQ(made.synchronize(queue(0)).status(), CISTERN_BUSY);
  }
  ASSERT_TRUE(made.device(queue(0)));
  auto unchecked = unified_buffer<int>::make(10, place(), {.checked = false}).value();
  const auto writes = unchecked.host_mut().value();
  EXPECT_TRUE(unchecked.device(queue(0)));
}

TEST_P(UnifiedTest, MovedFromIsUninitialised) {
  auto made = unified_buffer<int>::make(10, place()).value();
  made.host_mut().value()[9] = 5;
  unified_buffer<int> moved = std::move(made);
  EXPECT_EQ(made.state(), CISTERN_UNINITIALISED);
  EXPECT_EQ(made.size(), 0u);
  EXPECT_EQ(made.host().status(), CISTERN_EMPTY);
  EXPECT_EQ(made.fill(1).status(), CISTERN_EMPTY);
  EXPECT_EQ(made.wait().status(), CISTERN_EMPTY);
  EXPECT_EQ(moved.host().value()[9], 5);
  made = std::move(moved);
  EXPECT_EQ(made.host().value()[9], 5);
}

TEST_P(UnifiedTest, WrapsTheProgramsMemory) {
  std::vector<int> own(50, 6);
  auto made = unified_buffer<int>::make(50, place(), {.host = own.data()}).value();
  EXPECT_EQ(made.state(), CISTERN_HOST_ONLY);
  EXPECT_EQ(made.host().value().data(), own.data());
  ASSERT_TRUE(made.synchronize(queue(0)));
  ASSERT_TRUE(made.drop_host());
  own[7] = 1;
  EXPECT_EQ(made.host().value()[7], 6);
  EXPECT_EQ(own[7], 6);
}

TEST_P(UnifiedTest, MemoryGoesWithItsSide) {
  const auto live = [] {
    auto of = cistern::sized<cistern_figures>();
    EXPECT_EQ(cistern_get_figures(GetParam(), -1, &of), CISTERN_OK);
    return of.live_blocks;
  };
  const std::uint64_t before = live();
  auto made = unified_buffer<int>::make(5000, place()).value();
  std::ignore = made.host_mut().value();
  EXPECT_EQ(live(), before) << "nothing has asked for the device yet";
  ASSERT_TRUE(made.device(queue(0)));
  EXPECT_EQ(live(), before + 1);
  ASSERT_TRUE(made.drop_device());
  EXPECT_EQ(live(), before);
  ASSERT_TRUE(made.device(queue(0)));
  made = {};
  EXPECT_EQ(live(), before);
}

TEST_P(UnifiedTest, WrongHandlesAreNamed) {
  auto* const wrong = reinterpret_cast<cistern_unified*>(std::uintptr_t{0x12345673});
  cistern_state state;
  Captured said;
  EXPECT_EQ(cistern_unified_get_state(wrong, &state), CISTERN_INVALID);
  EXPECT_EQ(said.text(),
            "cistern: cistern_unified_get_state(0x12345673): no unified buffer, or destroyed already; refused\n");
  cistern_unified_settings of = world().settings;
  cistern_unified* made = nullptr;
  of.struct_bytes = sizeof of;
  EXPECT_EQ(cistern_unified_create(&of, &made), CISTERN_INVALID) << "no bytes";
  of.bytes = 100;
  of.kind = CISTERN_HOST;
  EXPECT_EQ(cistern_unified_create(&of, &made), CISTERN_INVALID);
  of.kind = GetParam();
  ASSERT_EQ(cistern_unified_create(&of, &made), CISTERN_OK);
  ASSERT_EQ(cistern_unified_destroy(made), CISTERN_OK);
  Captured said_then;
  EXPECT_EQ(cistern_unified_destroy(made), CISTERN_INVALID);
  EXPECT_NE(said_then.text().find("destroyed already"), std::string::npos);
}

// The child reads what its parent had on the host; what another thread was about to change is out of use there.
TEST_P(UnifiedTest, InAForkedChildTheHostsSideIsThere) {
  auto made = unified_buffer<int>::make(10, place()).value();
  made.host_mut().value()[2] = 8;
  const pid_t child = fork();
  if (!child) {
    const auto seen = made.host();
    _exit(seen && (*seen)[2] == 8 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_P(UnifiedTest, ForksBesideThreadsThatCopy) {
  std::atomic<bool> ends{false};
  std::deque<Beside> threads;
  for (unsigned i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      if (GetParam() == CISTERN_DEVICE) make_cuda_current();
      while (!ends) {
        auto made = unified_buffer<int>::make(1000, place()).value();
        made.host_overwrite().value()[5] = 6;
        EXPECT_TRUE(made.device_mut(queue(i)));
        EXPECT_EQ(made.host().value()[5], 6);
      }
    });
  for (int i = 0; i < 30; ++i) {
    const pid_t child = fork();
    if (!child) {
      auto made = unified_buffer<int>::make(1000, place()).value();
      made.host_mut().value()[1] = 2;
      _exit(made.host().value()[1] == 2 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  ends = true;
  for (Beside& thread : threads) thread.join();
}

// The host's side of one turn is page-locked and read late: it must not be filled anew before.
TEST_P(UnifiedTest, TurnsWaitForTheDevice) {
  constexpr std::size_t kCount = 10'000;
  auto turns = cistern::double_buffer<int>::make(kCount, place()).value();
  EXPECT_EQ(cistern::double_buffer<int>::make(1, place(), 1).status(), CISTERN_INVALID);
  simcuda_set_value("stream_delay_us", 100);
  std::vector<int> seen(kCount * 20);
  for (int i = 0; i < 20; ++i) {
    auto turn = turns.acquire().value();
    {
      auto writes = turn->host_overwrite().value();
      std::fill(writes.begin(), writes.end(), i);
    }
    const int* const address = turn->device(queue(0)).value();
    const cistern_part source = turn->memory_object()
                                    ? cistern_part{sizeof(cistern_part), CISTERN_OPENCL, turn->memory_object(), 0}
                                    : cistern_part{sizeof(cistern_part), CISTERN_DEVICE, const_cast<int*>(address), 0};
    const cistern_part target{sizeof(cistern_part), CISTERN_HOST, &seen[static_cast<std::size_t>(i) * kCount], 0};
    demand(cistern_enqueue_copy(&target, &source, kCount * sizeof(int), 0, queue(0).get()));
  }
  demand(cistern_queue_wait(GetParam(), 0, queue(0).get()));
  simcuda_set_value("stream_delay_us", 0);
  for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], static_cast<int>(i / kCount));
  auto one = turns.acquire().value(), other = turns.acquire().value();
  EXPECT_EQ(turns.acquire().status(), CISTERN_BUSY);
  one.release();
  EXPECT_TRUE(turns.acquire());
}

// What a destroy that fails leaves can be destroyed.
TEST_P(UnifiedTest, ADestroyThatFailsMayBeTriedAgain) {
  if (GetParam() != CISTERN_DEVICE) GTEST_SKIP() << "OpenCL's calls fail in failures_test.cpp";
  for (int n = 1; n < 8; ++n) {
    cistern_unified_settings of = world().settings;
    of.struct_bytes = sizeof of;
    of.bytes = 1 << 20;
    cistern_unified* made = nullptr;
    void* address = nullptr;
    ASSERT_EQ(cistern_unified_create(&of, &made), CISTERN_OK);
    ASSERT_EQ(cistern_unified_host(made, 0, SIZE_MAX, CISTERN_OVERWRITE, &address), CISTERN_OK);
    ASSERT_EQ(cistern_unified_device(made, 0, SIZE_MAX, CISTERN_READ, queues_[0], &address), CISTERN_OK);
    simcuda_set_value("fail_at", n);
    const cistern_status first = cistern_unified_destroy(made);
    simcuda_set_value("fail_at", 0);
    if (n == 1) EXPECT_EQ(first, CISTERN_DRIVER);
    if (first != CISTERN_OK) EXPECT_EQ(cistern_unified_destroy(made), CISTERN_OK) << n;
  }
}

TEST_P(UnifiedTest, AWrongQueueChangesNothing) {
  if (GetParam() != CISTERN_DEVICE) GTEST_SKIP() << "OpenCL's loader ends a process that gives it a wrong queue";
  auto made = unified_buffer<int>::make(100'000, place(), {.checked = false}).value();
  made.host_overwrite().value()[7] = 7;
  auto* const wrong = reinterpret_cast<CUstream_st*>(std::uintptr_t{0x1234560});
  EXPECT_EQ(made.device(wrong).status(), CISTERN_DRIVER);
  EXPECT_EQ(made.state(), CISTERN_HOST_ONLY);
  EXPECT_TRUE(made.device(queue(0)));
  EXPECT_EQ(made.device(wrong).status(), CISTERN_DRIVER) << "it cannot follow the other one";
  EXPECT_TRUE(made.wait());
  EXPECT_EQ(made.device(wrong).status(), CISTERN_OK) << "nothing is to be copied: nobody was asked";
  EXPECT_TRUE(made.wait()) << "work of a stream that is none ends with its context's";
  auto* const of_each_thread = reinterpret_cast<CUstream_st*>(std::uintptr_t{2});
  EXPECT_EQ(made.device(of_each_thread).status(), CISTERN_INVALID);
  EXPECT_EQ(made.fill(1, of_each_thread).status(), CISTERN_INVALID);
  EXPECT_EQ(made.host().value()[7], 7);
}

// Of the context that was current when it was made, whichever thread uses it.
TEST_P(UnifiedTest, ThreadsWithoutAContextUseItsOwn) {
  if (GetParam() != CISTERN_DEVICE) GTEST_SKIP() << "OpenCL has none that is current";
  const auto live = [] {
    auto of = cistern::sized<cistern_statistics>();
    cistern_get_statistics(CISTERN_DEVICE, &of);
    return of.live_blocks;
  };
  const std::uint64_t before = live();
  auto made = unified_buffer<int>::make(1000, cistern::on_device(CISTERN_CURRENT)).value();
  made.host_overwrite().value()[3] = 4;
  ASSERT_TRUE(made.device_mut());
  Beside([&] {
    EXPECT_TRUE(unified_buffer<int>::make(1000, cistern::on_device(CISTERN_CURRENT))) << "it gets one";
    EXPECT_EQ(made.host().value()[3], 4);
    made = {};
  }).join();
  EXPECT_EQ(live(), before);
}

// A child has no driver: what it inherited it can give up, and of lost ones it says nothing.
TEST_P(UnifiedTest, AForkedChildGivesUpWhatItInherited) {
  std::atomic<bool> ends{false};
  auto made = unified_buffer<int>::make(1000, place()).value();
  made.host_overwrite().value()[5] = 6;
  ASSERT_TRUE(made.device_mut(queue(0)));  // work that may be under way
  auto busy = unified_buffer<int>::make(1000, place(), {.checked = false}).value();
  Beside uses([&] {
    if (GetParam() == CISTERN_DEVICE) make_cuda_current();
    while (!ends) {
      EXPECT_TRUE(busy.host_overwrite());
      EXPECT_TRUE(busy.device_mut(queue(1)));
      EXPECT_TRUE(busy.host());
    }
  });
  for (int i = 0; i < 30; ++i) {
    Captured said;
    const pid_t child = fork();
    if (!child) {
      alarm(20);
      const cistern_status read = made.host().status();
      const bool right = read == CISTERN_NO_DRIVER && made.device(queue(0)).status() == CISTERN_NO_DRIVER;
      made = {};
      busy = {};
      auto fresh = unified_buffer<int>::make(1000, place()).value();
      fresh.host_overwrite().value()[1] = 1;
      _exit(right ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(said.text(), "");
  }
  ends = true;
  uses.join();
  EXPECT_EQ(made.host().value()[5], 6);
}

// The same steps again and again, of whose driver calls the n-th fails, for every n.
TEST_P(UnifiedTest, NothingIsLostWhereAnyCallFails) {
  if (GetParam() != CISTERN_DEVICE) GTEST_SKIP() << "OpenCL's calls fail in failures_test.cpp";
  constexpr unsigned kSteps = 60;
  unsigned runs_that_failed = 0;
  for (long long n = 1;; ++n) {
    long long left = n, calls_before = 0;
    UnifiedWorld failing = world();
    failing.may_fail = true;
    failing.let_fail = [&](bool fails) {
      if (fails) {
        calls_before = simcuda_value("calls");
        simcuda_set_value("fail_at", std::max(left, 0LL));
      } else {
        if (calls_before) left -= simcuda_value("calls") - calls_before;
        calls_before = 0;
        simcuda_set_value("fail_at", 0);
      }
    };
    UnifiedModel model(failing, numbers(5));
    for (unsigned step = 0; step < kSteps; ++step) {
      if (!calls_before) failing.let_fail(true);
      model.step();
    }
    failing.let_fail(false);
    model.check_all();
    runs_that_failed += model.failed() != 0;
    if (left > 0) break;  // there are no more calls
    ASSERT_LT(n, 10'000);
  }
  EXPECT_GT(runs_that_failed, 100u);
  cistern_trim(CISTERN_DEVICE, 0, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Kinds, UnifiedTest, testing::Values(CISTERN_OPENCL, CISTERN_DEVICE), name_of_kind);

TEST(Unified, PinsWhatIsCopiedOften) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  constexpr std::size_t kCount = 64 << 10;
  const auto copies_until_pinned = [](unified_options options, std::size_t count) {
    auto made = unified_buffer<char>::make(count, cistern::on_device(), options).value();
    const char* const before = made.host_overwrite().value().data();
    for (int copies = 0; copies < 40; ++copies) {
      if (made.metrics().is_pinned) return copies;
      EXPECT_TRUE(copies % 2 ? made.host_mut().status() == CISTERN_OK : made.device_mut().status() == CISTERN_OK);
    }
    EXPECT_EQ(made.host().value().data(), before) << "where it lies";
    return made.metrics().is_pinned ? 40 : -1;
  };
  EXPECT_EQ(copies_until_pinned({.checked = false}, kCount), 11);
  EXPECT_EQ(copies_until_pinned({.checked = false}, kCount - 1), -1) << "not worth it";
  EXPECT_EQ(copies_until_pinned({.pin = CISTERN_PIN_NEVER, .checked = false}, kCount), -1);
  EXPECT_EQ(copies_until_pinned({.pin = CISTERN_PIN_AT_ONCE, .checked = false}, 10), 0);
  cistern_trim(CISTERN_PINNED, 0, nullptr);
  EXPECT_EQ(simcuda_value("live_pinned"), 0) << "and nothing stays page-locked";
}

}  // namespace
