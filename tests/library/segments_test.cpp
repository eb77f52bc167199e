// Pools that cut blocks out of segments of their own (CISTERN_SEGMENTS): in a program that links the library, and again
// with the object preloaded, where the hooks see what the program does with a block. CUDA is the simulated driver.
#include <cistern/plugins.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cistern/cuda_resource.hpp>
#include <cstring>
#include <mutex>
#include <random>
#include <vector>

#include "tests/library/captured.hpp"
#include "tests/library/driver_calls.hpp"
#include "tests/library/kinds.hpp"
#include "tests/simcuda/simcuda.h"
#include "tests/support/random.hpp"

namespace {

// Then every stream is seen when it is made.
bool is_preloaded() { return getenv("LD_PRELOAD") && strstr(getenv("LD_PRELOAD"), "libcistern"); }

CUdeviceptr address(const void* block) { return reinterpret_cast<CUdeviceptr>(block); }

// On the first device.
CUresult make_context(CUcontext* context) {
  using Create = CUresult (*)(CUcontext*, unsigned, CUdevice);
  return driver_function(static_cast<Create>(nullptr), "cuCtxCreate_v2")(context, 0, 0);
}

class Segments : public testing::Test {
 protected:
  void SetUp() override {
    if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
    cistern_trim(CISTERN_DEVICE, 0, nullptr);
  }
  static cistern_pool* make(const char* name, cistern_kind kind = CISTERN_DEVICE) {
    cistern_pool_settings of{};
    of.struct_bytes = sizeof of;
    of.name = name;
    of.kind = kind;
    of.memory = CISTERN_SEGMENTS;
    cistern_pool* pool = nullptr;
    EXPECT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
    return pool;
  }
  static void* take(cistern_pool* pool, std::size_t bytes) {
    void* block = nullptr;
    EXPECT_EQ(cistern_pool_allocate(pool, bytes, 0, &block), CISTERN_OK);
    return block;
  }
  static void* take_on(cistern_pool* pool, std::size_t bytes, CUstream stream) {
    void* block = nullptr;
    EXPECT_EQ(cistern_pool_allocate_on(pool, bytes, CISTERN_CURRENT, stream, &block), CISTERN_OK);
    return block;
  }
  static void give(cistern_pool* pool, void* block) {
    EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
  }
  static cistern_pool_statistics statistics(cistern_pool* pool) {
    auto of = cistern::sized<cistern_pool_statistics>();
    EXPECT_EQ(cistern_pool_get_statistics(pool, &of), CISTERN_OK);
    return of;
  }
  static cistern_figures figures(cistern_kind kind = CISTERN_DEVICE) {
    auto of = cistern::sized<cistern_figures>();
    EXPECT_EQ(cistern_get_figures(kind, -1, &of), CISTERN_OK);
    return of;
  }
};

TEST_F(Segments, AreOfMemoryThatCanBeCut) {
  for (const auto& [kind, name] : {std::pair{CISTERN_HOST, "host"}, std::pair{CISTERN_MANAGED, "managed"}}) {
    cistern_pool_settings of{};
    of.struct_bytes = sizeof of;
    of.name = "cut";
    of.kind = kind;
    of.memory = CISTERN_SEGMENTS;
    cistern_pool* pool = nullptr;
    Captured said;
    EXPECT_EQ(cistern_pool_create(&of, &pool), CISTERN_INVALID);
    EXPECT_EQ(said.text(), std::string("cistern: cistern_pool_create: pool \"cut\" (") + name +
                               "): this memory cannot be cut into blocks; refused\n");
    of.memory = static_cast<cistern_pool_memory>(2);
    EXPECT_EQ(cistern_pool_create(&of, &pool), CISTERN_INVALID);
  }
}

TEST_F(Segments, TakeFewCallsOfTheDriver) {
  cistern_pool* const pool = make("few");
  std::vector<void*> blocks;
  const long long before = simcuda_value("allocs");
  for (int i = 0; i < 1000; ++i) blocks.push_back(take(pool, 10'000 + 1000 * i));
  EXPECT_LT(simcuda_value("allocs") - before, 350);
  EXPECT_EQ(statistics(pool).segments_made, static_cast<std::uint64_t>(simcuda_value("allocs") - before));
  for (void* const block : blocks) give(pool, block);
  blocks.clear();
  const long long then = simcuda_value("allocs");
  for (int i = 0; i < 1000; ++i) blocks.push_back(take(pool, 11'000 + 900 * i));
  EXPECT_LT(simcuda_value("allocs") - then, 20) << "what was freed is joined";
  for (void* const block : blocks) give(pool, block);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(Segments, HaveFiguresThatAddUp) {
  for (const cistern_kind kind : {CISTERN_DEVICE, CISTERN_PINNED}) {
    cistern_trim(kind, 0, nullptr);
    const cistern_figures before = figures(kind);
    cistern_pool* const pool = make("figures", kind);
    void *const a = take(pool, 300'000), *const b = take(pool, 100'000), *const c = take(pool, 700'001);
    give(pool, b);
    const cistern_figures now = figures(kind);
    const cistern_pool_statistics of_pool = statistics(pool);
    EXPECT_EQ(now.live_bytes - before.live_bytes, 1'000'001u);
    EXPECT_EQ(now.live_blocks - before.live_blocks, 2u) << "a segment is no block of the program's";
    EXPECT_EQ(now.reserved_bytes - before.reserved_bytes, of_pool.segment_bytes);
    // A block takes its last 512 bytes whole.
    const std::uint64_t cut = (300'000 + 511) / 512 * 512 + (700'001 + 511) / 512 * 512;
    EXPECT_EQ(now.free_bytes - before.free_bytes, of_pool.segment_bytes - cut);
    give(pool, a);
    give(pool, c);
    std::size_t returned = 0;
    EXPECT_EQ(cistern_trim(kind, 0, &returned), CISTERN_OK);
    EXPECT_GE(returned, of_pool.segment_bytes);
    EXPECT_EQ(statistics(pool).segments, 0u);
    EXPECT_EQ(figures(kind).reserved_bytes, before.reserved_bytes);
    EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  }
}

TEST_F(Segments, HaveHolesThatFiguresTell) {
  cistern_pool* const pool = make("holes");
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(take(pool, 100'000));
  for (int i = 0; i < 10; i += 2) give(pool, blocks[i]);
  const cistern_figures now = figures();
  EXPECT_GT(now.external_fragmentation, 0.1);
  EXPECT_DOUBLE_EQ(now.external_fragmentation,
                   1 - static_cast<double>(now.largest_free_bytes) / static_cast<double>(now.free_bytes));
  for (int i = 1; i < 10; i += 2) give(pool, blocks[i]);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(Segments, CountNoRequestThatFailed) {
  cistern_pool* const pool = make("counted");
  void* none = nullptr;
  EXPECT_EQ(cistern_pool_allocate(pool, std::size_t{1} << 50, 0, &none), CISTERN_NO_MEMORY);
  EXPECT_EQ(statistics(pool).segments_made, 0u);
  give(pool, take(pool, 1000));
  EXPECT_EQ(statistics(pool).segments_made, 1u);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(Segments, AreNotTheParentsInAChild) {
  cistern_pool* const pool = make("of the parent");
  give(pool, take(pool, 1000));
  const pid_t child = fork();
  if (!child) _exit(static_cast<int>(statistics(pool).segments_made));
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(statistics(pool).segments_made, 1u);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(Segments, CanBeVisited) {
  struct Seen {
    std::uint64_t count = 0, bytes = 0;
    std::uintptr_t first = 0, end = 0;
    int device = -1;
  } seen;
  const auto see = [](void* segment, std::size_t bytes, int device, void* user) {
    Seen& seen = *static_cast<Seen*>(user);
    ++seen.count;
    seen.bytes += bytes;
    seen.first = reinterpret_cast<std::uintptr_t>(segment);
    seen.end = seen.first + bytes;
    seen.device = device;
    return 0;
  };
  cistern_pool* const pool = make("visited");
  void* const block = take(pool, 5000);
  EXPECT_EQ(cistern_pool_visit_segments(pool, see, &seen), CISTERN_OK);
  EXPECT_EQ(seen.count, 1u);
  EXPECT_EQ(seen.bytes, statistics(pool).segment_bytes);
  EXPECT_TRUE(seen.first <= address(block) && address(block) + 5000 <= seen.end);
  EXPECT_EQ(seen.device, 0);
  void* const of_other_device = cistern_torch_alloc(5000, 1, nullptr);
  cistern_pool* torchs = nullptr;
  EXPECT_EQ(cistern_torch_pool(&torchs), CISTERN_OK);
  EXPECT_EQ(cistern_pool_visit_segments(torchs, see, &seen), CISTERN_OK);
  EXPECT_EQ(seen.device, 1);
  cistern_torch_free(of_other_device, 5000, 1, nullptr);
  give(pool, block);
  seen = {};
  EXPECT_EQ(cistern_pool_visit_segments(cistern::default_pool(CISTERN_DEVICE), see, &seen), CISTERN_OK);
  EXPECT_EQ(seen.count, 0u) << "a pool without segments";
  EXPECT_EQ(cistern_pool_visit_segments(pool, nullptr, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// With options (CMakeLists.txt).
TEST(SegmentsByOption, BlocksThatAreNotKeptAreWhole) {
  if (!getenv("BLOCKS_ARE_WHOLE_FROM")) GTEST_SKIP() << "a part of other tests";
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  const std::size_t limit = strtoull(getenv("BLOCKS_ARE_WHOLE_FROM"), nullptr, 10);
  const cistern::device_resource memory;
  for (const std::size_t bytes : {std::size_t{1000}, std::size_t{4} << 20, std::size_t{9} << 20}) {
    const long long before = simcuda_value("allocs"), freed = simcuda_value("frees");
    const auto of = [&] {
      auto now = cistern::sized<cistern_pool_statistics>();
      EXPECT_EQ(cistern_pool_get_statistics(memory.pool(), &now), CISTERN_OK);
      return now;
    };
    const std::uint64_t segments = of().segments_made;
    void* const block = memory.allocate(bytes);
    EXPECT_EQ(simcuda_value("allocs") - before, 1);
    EXPECT_EQ(of().segments_made - segments, bytes < limit);
    EXPECT_EQ(of().live_bytes, bytes);
    memory.deallocate(block, bytes);
    EXPECT_EQ(simcuda_value("frees") - freed, bytes >= limit);
    cistern_trim(CISTERN_DEVICE, 0, nullptr);
  }
}

TEST(SegmentsByOption, BlocksAreWholeWhereTheDriverHasNoEvents) {
  if (!getenv("EVENTS_ARE_MISSING")) GTEST_SKIP() << "a part of other tests";
  ASSERT_TRUE(make_cuda_current());
  const cistern::device_resource memory;
  memory.deallocate(memory.allocate(1000), 1000);
  auto now = cistern::sized<cistern_pool_statistics>();
  EXPECT_EQ(cistern_pool_get_statistics(memory.pool(), &now), CISTERN_OK);
  EXPECT_EQ(now.allocations, 1u);
  EXPECT_EQ(now.segments_made, 0u);
}

TEST(SegmentsByOption, InDeferredOrderFreesThatWaitAreBounded) {
  if (!getenv("FREES_WAIT_UP_TO")) GTEST_SKIP() << "a part of other tests";
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  cistern::pool pool = cistern::pool::make({.kind = CISTERN_DEVICE, .memory = CISTERN_SEGMENTS}).value();
  BusyStream stream;
  stream.let_go();
  simcuda_set_value("stream_delay_us", 2000);
  constexpr std::size_t kBytes = 8 * kMiB;
  for (int i = 0; i < 200; ++i) {
    void* block = nullptr;
    ASSERT_EQ(cistern_pool_allocate(pool.get(), kBytes, 0, &block), CISTERN_OK);
    EXPECT_EQ(DRIVER(cuMemsetD8Async)(address(block), 1, 100, stream.stream), CUDA_SUCCESS);
    EXPECT_EQ(cistern_pool_deallocate(pool.get(), block, nullptr), CISTERN_OK);
  }
  simcuda_set_value("stream_delay_us", 0);
  auto figures = cistern::sized<cistern_figures>();
  EXPECT_EQ(cistern_get_figures(CISTERN_DEVICE, -1, &figures), CISTERN_OK);
  EXPECT_LE(figures.reserved_peak_bytes, strtoull(getenv("FREES_WAIT_UP_TO"), nullptr, 10));
}

TEST(SegmentsByOption, InDeferredOrderNoBlockIsGivenAgainBeforeItsWorkHasEnded) {
  if (!getenv("FREES_WAIT_UP_TO")) GTEST_SKIP() << "a part of other tests";
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  for (const cistern_pool_memory memory : {CISTERN_WHOLE_BLOCKS, CISTERN_SEGMENTS}) {
    cistern::pool pool = cistern::pool::make({.kind = CISTERN_DEVICE, .memory = memory}).value();
    BusyStream stream;
    stream.let_go();
    void *block = nullptr, *next = nullptr;
    ASSERT_EQ(cistern_pool_allocate(pool.get(), kMiB, 0, &block), CISTERN_OK);
    simcuda_set_value("stream_delay_us", 300'000);
    EXPECT_EQ(DRIVER(cuMemsetD8Async)(address(block), 1, 100, stream.stream), CUDA_SUCCESS);
    simcuda_set_value("stream_delay_us", 0);
    EXPECT_EQ(cistern_pool_deallocate(pool.get(), block, nullptr), CISTERN_OK);
    ASSERT_EQ(cistern_pool_allocate(pool.get(), kMiB, 0, &next), CISTERN_OK);
    EXPECT_TRUE(next != block || stream.is_idle());
    EXPECT_EQ(cistern_pool_deallocate(pool.get(), next, nullptr), CISTERN_OK);
  }
}

TEST_F(Segments, GoBackInTheEndWhenTheyAreNotNeededAnyMore) {
  cistern_pool* const pool = make("defragmented");
  void* const kept = take(pool, 5000);
  give(pool, take(pool, 64 * kMiB));
  EXPECT_EQ(cistern_defragment(CISTERN_DEVICE, nullptr), CISTERN_OK);
  EXPECT_GE(statistics(pool).segment_bytes, 64 * kMiB) << "needed before the first call";
  std::size_t returned = 0;
  EXPECT_EQ(cistern_defragment(CISTERN_DEVICE, &returned), CISTERN_OK);
  EXPECT_GE(returned, 64 * kMiB);
  EXPECT_EQ(statistics(pool).segments, 1u);
  give(pool, kept);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(Segments, GoBackWithTheirPool) {
  const long long before = simcuda_value("live_allocations");
  cistern_pool* const pool = make("gone");
  give(pool, take(pool, 5 * kMiB));
  EXPECT_GT(simcuda_value("live_allocations"), before);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  EXPECT_EQ(simcuda_value("live_allocations"), before);
}

TEST_F(Segments, ServeTheSameStreamAtOnceAndOthersBehindItsWork) {
  if (!is_preloaded()) GTEST_SKIP() << "streams are not seen when they are made";
  cistern_pool* const pool = make("ordered");
  BusyStream busy, other;
  other.let_go();
  void* const block = take_on(pool, kMiB, busy.stream);
  ASSERT_EQ(cistern_pool_deallocate_on(pool, block, busy.stream), CISTERN_OK);
  EXPECT_FALSE(busy.is_idle()) << "nothing waits";
  void* const of_other = take_on(pool, kMiB, other.stream);
  void* const of_none = take(pool, kMiB);
  EXPECT_NE(of_other, block);
  EXPECT_NE(of_none, block);
  void* const again = take_on(pool, kMiB, busy.stream);
  EXPECT_EQ(again, block);
  // The same by the other call, which names the stream as well.
  ASSERT_EQ(cistern_pool_deallocate(pool, again, busy.stream), CISTERN_OK);
  EXPECT_EQ(take_on(pool, kMiB, busy.stream), block);
  ASSERT_EQ(cistern_pool_deallocate_on(pool, block, busy.stream), CISTERN_OK);
  busy.let_go();
  std::vector<void*> taken{of_other, of_none};
  while (taken.back() != block && taken.size() < 6) taken.push_back(take(pool, kMiB));
  EXPECT_EQ(taken.back(), block) << "its work has ended";
  for (void* const each : taken) give(pool, each);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(Segments, GiveBlocksOfUnseenStreamsToNobodyBeforeTheirWorkEnds) {
  cistern_pool* const pool = make("unseen");
  BusyStream busy;
  void* const block = take_on(pool, kMiB, busy.stream);
  ASSERT_EQ(cistern_pool_deallocate_on(pool, block, busy.stream), CISTERN_OK);
  EXPECT_FALSE(busy.is_idle()) << "nothing waits";
  void* const next = take_on(pool, kMiB, nullptr);
  EXPECT_NE(next, block);
  busy.let_go();
  EXPECT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
  void* const last = take_on(pool, kMiB, nullptr);
  EXPECT_EQ(last, block);
  give(pool, next);
  give(pool, last);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// As arrays of CuPy do. A driver ends the program that names a destroyed stream, and so does the simulated one.
TEST_F(Segments, DoNotNameAStreamThatIsGone) {
  if (!is_preloaded()) GTEST_SKIP() << "streams are not seen when they end";
  cistern_pool* const pool = make("gone");
  for (const auto give_back : {cistern_pool_deallocate_on, cistern_pool_deallocate}) {
    CUstream stream = nullptr;
    ASSERT_EQ(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    void* const block = take_on(pool, kMiB, stream);
    EXPECT_EQ(DRIVER_V2(cuMemsetD8)(address(block), 0, 4), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
    simcuda_set_value("stream_delay_us", 20'000);
    EXPECT_EQ(DRIVER(cuMemsetD8Async)(address(block), 1, kMiB, stream), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER_V2(cuStreamDestroy)(stream), CUDA_SUCCESS);
    EXPECT_EQ(give_back(pool, block, stream), CISTERN_OK);
    simcuda_set_value("stream_delay_us", 0);
    void* const next = take(pool, kMiB);
    EXPECT_EQ(next, block);
    unsigned char first = 0;
    EXPECT_EQ(DRIVER_V2(cuMemcpyDtoH)(&first, address(next), 1), CUDA_SUCCESS);
    EXPECT_EQ(first, 1) << "its last work was waited for";
    give(pool, next);
  }
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(Segments, WaitForFurtherStreamsOfABlock) {
  if (!is_preloaded()) GTEST_SKIP() << "then the free itself waits";
  cistern_pool* const pool = make("recorded");
  BusyStream one, further;
  one.let_go();
  void* const block = take_on(pool, kMiB, one.stream);
  EXPECT_EQ(cistern_block_used_on(block, further.stream), CISTERN_OK);
  ASSERT_EQ(cistern_pool_deallocate_on(pool, block, one.stream), CISTERN_OK);
  void* const next = take_on(pool, kMiB, one.stream);
  EXPECT_NE(next, block) << "the other stream still uses it";
  further.let_go();
  void* const last = take_on(pool, kMiB, one.stream);
  EXPECT_EQ(last, block);
  give(pool, next);
  give(pool, last);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(Segments, MakeWayForOthersThatRunOutOfMemory) {
  const long long memory = 8LL << 30;
  cistern_pool *const pool = make("makes way"), *const whole = make("large");
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(take(pool, memory / 8));
  for (void* const block : blocks) give(pool, block);
  void* const large = take(whole, memory / 2);
  EXPECT_TRUE(large) << "of another pool with segments";
  give(whole, large);
  void* const own = take(pool, memory / 4 * 3);
  EXPECT_TRUE(own) << "of its own empty segments";
  give(pool, own);
  unsigned long long driver_block = 0;
  ASSERT_EQ(cistern_cuda_allocate(memory / 4 * 3, &driver_block), CISTERN_OK) << "of the process's own pool";
  EXPECT_EQ(cistern_cuda_deallocate(driver_block), CISTERN_OK);
  cistern_trim(CISTERN_DEVICE, 0, nullptr);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(whole), CISTERN_OK);
}

// The other thread is in the middle of a call of the driver, which takes long.
TEST_F(Segments, MakeWayWhileAnotherThreadAsksForTheirWork) {
  const std::size_t memory = 8ull << 30;
  cistern_pool *const pool = make("asked"), *const other = make("other");
  CUcontext context = nullptr;
  EXPECT_EQ(DRIVER(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(take_on(pool, memory / 8, stream));
  for (void* const block : blocks) {
    EXPECT_EQ(DRIVER(cuMemsetD8Async)(address(block), 1, 64, stream), CUDA_SUCCESS);
    EXPECT_EQ(cistern_pool_deallocate_on(pool, block, stream), CISTERN_OK);
  }
  EXPECT_EQ(DRIVER(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  simcuda_set_value("latency_ns:cuEventQuery", 100'000'000);
  const long long calls = simcuda_value("calls:cuEventQuery");
  void* small = nullptr;
  {
    const Beside asks([&] {
      EXPECT_EQ(DRIVER(cuCtxSetCurrent)(context), CUDA_SUCCESS);
      small = take(pool, 1000);
    });
    while (simcuda_value("calls:cuEventQuery") == calls) std::this_thread::yield();
    void* const large = take(other, memory / 2);
    simcuda_set_value("latency_ns:cuEventQuery", 0);
    EXPECT_TRUE(large);
    give(other, large);
  }
  give(pool, small);
  EXPECT_EQ(DRIVER_V2(cuStreamDestroy)(stream), CUDA_SUCCESS);
  for (cistern_pool* const each : {pool, other}) EXPECT_EQ(cistern_pool_destroy(each), CISTERN_OK);
}

// While a stream captures no fence can be asked: the driver's own free waits.
TEST_F(Segments, MakeWayWhileAStreamCaptures) {
  if (!is_preloaded()) GTEST_SKIP() << "captures are not seen when they begin";
  const std::size_t memory = 8ull << 30;
  cistern_pool* const pool = make("captured");
  CUstream stream = nullptr, capturing = nullptr;
  for (CUstream* each : {&stream, &capturing})
    ASSERT_EQ(DRIVER(cuStreamCreate)(each, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  void* const block = take_on(pool, memory / 4 * 3, stream);
  EXPECT_EQ(DRIVER(cuMemsetD8Async)(address(block), 1, 1000, stream), CUDA_SUCCESS);
  ASSERT_EQ(cistern_pool_deallocate_on(pool, block, stream), CISTERN_OK);
  CUgraph graph = nullptr;
  ASSERT_EQ(DRIVER_V2(cuStreamBeginCapture)(capturing, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  CUdeviceptr of_driver = 0;
  EXPECT_EQ(DRIVER_V2(cuMemAlloc)(&of_driver, memory / 4 * 3), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamEndCapture)(capturing, &graph), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER_V2(cuMemFree)(of_driver), CUDA_SUCCESS);
  for (CUstream each : {stream, capturing}) EXPECT_EQ(DRIVER_V2(cuStreamDestroy)(each), CUDA_SUCCESS);
  cistern_trim(CISTERN_DEVICE, 0, nullptr);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// Memory whose work has not ended is waited for before a request fails, as the driver would.
TEST_F(Segments, WaitForWorkBeforeARequestFails) {
  if (!is_preloaded()) GTEST_SKIP() << "streams are not seen when they are made";
  const std::size_t memory = 8ull << 30;
  cistern_pool* const pool = make("waits");
  simcuda_set_value("stream_delay_us", 20'000);
  CUstream stream = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  void* const block = take_on(pool, memory / 4 * 3, stream);
  EXPECT_EQ(DRIVER(cuMemsetD8Async)(address(block), 1, 1000, stream), CUDA_SUCCESS);
  ASSERT_EQ(cistern_pool_deallocate_on(pool, block, stream), CISTERN_OK);
  unsigned long long driver_block = 0;
  EXPECT_EQ(cistern_cuda_allocate(memory / 4 * 3, &driver_block), CISTERN_OK);
  simcuda_set_value("stream_delay_us", 0);
  EXPECT_EQ(cistern_cuda_deallocate(driver_block), CISTERN_OK);
  cistern_trim(CISTERN_DEVICE, 0, nullptr);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(Segments, AreOfOneDeviceEach) {
  cistern_pool* const pool = make("devices");
  void* blocks[2] = {};
  for (int device = 0; device < 2; ++device) {
    ASSERT_EQ(cistern_pool_allocate_on(pool, 1000, device, nullptr, &blocks[device]), CISTERN_OK);
    int of = -1;
    EXPECT_EQ(DRIVER(cuPointerGetAttribute)(&of, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address(blocks[device])),
              CUDA_SUCCESS);
    EXPECT_EQ(of, device);
  }
  EXPECT_EQ(statistics(pool).segments, 2u);
  for (void* const block : blocks) EXPECT_EQ(cistern_pool_deallocate_on(pool, block, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

struct OwnStream {
  CUstream stream;
  CUstream_st* get() const { return stream; }
};

TEST_F(Segments, AreChosenByAResourcesArgument) {
  const cistern::device_resource whole(CISTERN_WHOLE_BLOCKS), cut(CISTERN_SEGMENTS);
  EXPECT_EQ(cut, cistern::device_resource()) << "unless it is told otherwise";
  EXPECT_EQ(whole.pool(), cistern::default_pool(CISTERN_DEVICE));
  EXPECT_EQ(cistern::pinned_resource().pool(), cistern::default_pool(CISTERN_PINNED));
  EXPECT_NE(whole, cut);
  EXPECT_EQ(cut, cistern::device_resource(CISTERN_SEGMENTS)) << "one pool for all";
  BusyStream busy;
  const OwnStream on{busy.stream};
  void* const block = cut.allocate(on, 5000);
  EXPECT_EQ(statistics(cut.pool()).segments, 1u);
  cut.deallocate(on, block, 5000);
  EXPECT_FALSE(busy.is_idle()) << "nothing waits";
  void* const again = cut.allocate_async(5000, 256, on);
  if (is_preloaded()) EXPECT_EQ(again, block) << "in the order of the stream";
  busy.let_go();
  cut.deallocate_async(again, 5000, 256, on);
  void* const aligned = cut.allocate(on, 5000, 4096);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 4096, 0u);
  cut.deallocate(aligned, 5000, 4096);
  EXPECT_THROW((void)cut.allocate(on, std::size_t{1} << 50), cistern::bad_alloc);
  cistern::pool own = cistern::pool::make({.kind = CISTERN_PINNED, .memory = CISTERN_SEGMENTS}).value();
  EXPECT_EQ(own.memory(), CISTERN_SEGMENTS);
  const cistern::pinned_resource pinned(own);
  void* const array = pinned.allocate(5000, 64);
  memset(array, 1, 5000);
  pinned.deallocate(array, 5000, 64);
  EXPECT_TRUE(own.destroy());
}

[[gnu::noinline]] void* take_here(cistern_pool* pool) {
  void* block = nullptr;
  EXPECT_EQ(cistern_pool_allocate(pool, 54'321, 0, &block), CISTERN_OK);
  return block;
}

TEST_F(Segments, HaveBlocksWithTheirOwnSites) {
  cistern_pool* const pool = make("sites");
  void* const block = take_here(pool);
  struct Found {
    void* block;
    std::uint32_t site = 0;
  } found{block};
  cistern_visit(
      CISTERN_DEVICE,
      [](const cistern_block* of, void* context) {
        auto& [block, site] = *static_cast<Found*>(context);
        EXPECT_LT(of->bytes, 2 * kMiB) << "no segment is shown";
        if (of->address == block && of->bytes == 54'321) site = of->site;
        return 0;
      },
      &found);
  ASSERT_NE(found.site, 0u);
  std::string function;
  cistern_visit_frames(
      found.site,
      [](const cistern_frame* of, void* to) {
        *static_cast<std::string*>(to) = of->function ? of->function : "?";
        return 1;
      },
      &function);
  EXPECT_NE(function.find("take_here"), std::string::npos) << function;
  give(pool, block);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// --- What the program does with a block by the driver's calls, which the preloaded object sees
class SegmentsBesideTheDriver : public Segments {
 protected:
  void SetUp() override {
    Segments::SetUp();
    if (!is_preloaded()) GTEST_SKIP() << "the driver's calls are seen by the preloaded object";
  }
};

TEST_F(SegmentsBesideTheDriver, AreNotFreedByTheDriversCall) {
  cistern_pool* const pool = make("refuses");
  void *const first = take(pool, 1000), *const second = take(pool, 1000);
  for (void* const block : {first, second}) {
    Captured said;
    EXPECT_EQ(DRIVER_V2(cuMemFree)(address(block)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(DRIVER(cuMemFreeAsync)(address(block), nullptr), CUDA_ERROR_INVALID_VALUE);
    const std::string text = said.text();
    EXPECT_NE(text.find("this is a live pooled block, allocated at"), std::string::npos) << text;
  }
  EXPECT_EQ(statistics(pool).live_blocks, 2u);
  char bytes[1000] = "kept", back[1000];
  EXPECT_EQ(DRIVER_V2(cuMemcpyHtoD)(address(first), bytes, sizeof bytes), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER_V2(cuMemcpyDtoH)(back, address(first), sizeof back), CUDA_SUCCESS);
  EXPECT_STREQ(back, "kept");
  give(pool, first);
  give(pool, second);
  {
    Captured said;
    EXPECT_EQ(DRIVER_V2(cuMemFree)(address(first)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_NE(said.text().find("already freed"), std::string::npos);
  }
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(SegmentsBesideTheDriver, AreNotFreedByTheDriversCallBeforeTheyHadABlock) {
  for (const cistern_kind kind : {CISTERN_DEVICE, CISTERN_PINNED}) {
    cistern_pool* const pool = make("reserved", kind);
    ASSERT_EQ(cistern_pool_reserve(pool, 3 * kMiB, 1), CISTERN_OK);
    CUdeviceptr first = 0;
    const auto note = [](void* segment, std::size_t, int, void* user) {
      *static_cast<CUdeviceptr*>(user) = address(segment);
      return 0;
    };
    EXPECT_EQ(cistern_pool_visit_segments(pool, note, &first), CISTERN_OK);
    Captured said;
    if (kind == CISTERN_DEVICE) EXPECT_EQ(DRIVER_V2(cuMemFree)(first), CUDA_ERROR_INVALID_VALUE);
    if (kind == CISTERN_DEVICE) EXPECT_EQ(DRIVER(cuMemFreeAsync)(first, nullptr), CUDA_ERROR_INVALID_VALUE);
    if (kind == CISTERN_PINNED)
      EXPECT_EQ(DRIVER(cuMemFreeHost)(reinterpret_cast<void*>(first)), CUDA_ERROR_INVALID_VALUE);
    give(pool, take(pool, 3 * kMiB));
    EXPECT_EQ(statistics(pool).segments_made, 1u) << "it is there";
    EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  }
}

TEST_F(SegmentsBesideTheDriver, ShowTheBlockToQueries) {
  cistern_pool* const pool = make("queried");
  void *const first = take(pool, 5000), *const second = take(pool, 7000);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(DRIVER_V2(cuMemGetAddressRange)(&base, &bytes, address(second) + 100), CUDA_SUCCESS);
  EXPECT_LE(base, std::min(address(first), address(second))) << "the segment";
  EXPECT_GE(base + bytes, std::max(address(first) + 5000, address(second) + 7000));
  CUdeviceptr start = 0;
  EXPECT_EQ(DRIVER(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address(first)), CUDA_SUCCESS);
  EXPECT_EQ(start, base);
  unsigned long long one = 0, other = 0;
  DRIVER(cuPointerGetAttribute)(&one, CU_POINTER_ATTRIBUTE_BUFFER_ID, address(first));
  DRIVER(cuPointerGetAttribute)(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, address(second));
  EXPECT_NE(one, other);
  unsigned set = 1, seen = 7;
  EXPECT_EQ(DRIVER(cuPointerSetAttribute)(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address(first)), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuPointerGetAttribute)(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address(second)), CUDA_SUCCESS);
  EXPECT_EQ(seen, 0u) << "of another block";
  EXPECT_EQ(DRIVER(cuPointerGetAttribute)(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address(first)), CUDA_SUCCESS);
  EXPECT_EQ(seen, 1u);
  give(pool, second);
  EXPECT_NE(DRIVER_V2(cuMemGetAddressRange)(&base, &bytes, address(second)), CUDA_SUCCESS) << "nobody has it";
  EXPECT_NE(DRIVER_V2(cuMemGetAddressRange)(&base, &bytes, address(second) + kMiB), CUDA_SUCCESS) << "nobody had it";
  give(pool, first);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(SegmentsBesideTheDriver, KeepCopiesWithinTheBlock) {
  cistern_pool* const pool = make("copies");
  void *const block = take(pool, 4096), *const next = take(pool, 4096);
  std::vector<char> host(8192, 3);
  EXPECT_EQ(DRIVER_V2(cuMemcpyHtoD)(address(block), host.data(), 4096), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER_V2(cuMemcpyHtoD)(address(block), host.data(), 8192), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER_V2(cuMemsetD8)(address(block) + 4000, 1, 200), CUDA_ERROR_INVALID_VALUE);
  give(pool, next);
  {
    Captured said;
    EXPECT_EQ(DRIVER_V2(cuMemsetD8)(address(next), 1, 200), CUDA_ERROR_INVALID_VALUE);
    EXPECT_NE(said.text().find("already freed"), std::string::npos);
  }
  give(pool, block);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// The other process opens the segment, and knows the block's offset. The block's addresses are not given again.
TEST_F(SegmentsBesideTheDriver, AreSharedWithOtherProcessesByOffset) {
  cistern_pool* const pool = make("shared");
  void *const beside = take(pool, 4096), *const block = take(pool, 4096);
  CUipcMemHandle handle, of_segment;
  CUdeviceptr base = 0;
  ASSERT_EQ(DRIVER_V2(cuMemGetAddressRange)(&base, nullptr, address(block)), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuIpcGetMemHandle)(&handle, address(block)), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuIpcGetMemHandle)(&of_segment, base), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&handle, &of_segment, sizeof handle), 0);
  give(pool, block);
  std::vector<void*> others;
  for (int i = 0; i < 100; ++i) others.push_back(take(pool, 4096));
  EXPECT_EQ(std::count(others.begin(), others.end(), block), 0);
  for (void* const other : others) give(pool, other);
  give(pool, beside);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(SegmentsBesideTheDriver, LeaveFreeMemoryAsItIsWithoutThem) {
  std::size_t before = 0, now = 0, total = 0;
  cistern_pool* const pool = make("information");
  EXPECT_EQ(DRIVER_V2(cuMemGetInfo)(&before, &total), CUDA_SUCCESS);
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(take(pool, kMiB));
  const std::size_t segments = statistics(pool).segment_bytes;
  EXPECT_EQ(DRIVER_V2(cuMemGetInfo)(&now, &total), CUDA_SUCCESS);
  EXPECT_EQ(now, before - segments) << "between blocks nobody else finds room";
  for (void* const block : blocks) give(pool, block);
  EXPECT_EQ(DRIVER_V2(cuMemGetInfo)(&now, &total), CUDA_SUCCESS);
  EXPECT_EQ(now, before) << "empty segments go back when they are needed";
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// While a stream captures no event can be recorded, so nothing tells when the work of a stream that goes has ended.
TEST_F(SegmentsBesideTheDriver, AreThereAgainWhenLostWorkWasWaitedFor) {
  cistern_pool* const pool = make("lost");
  CUstream capturing = nullptr, stream = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&capturing, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  BusyStream lost;
  CUgraph graph = nullptr;
  ASSERT_EQ(DRIVER_V2(cuStreamBeginCapture)(capturing, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER_V2(cuStreamDestroy)(lost.stream), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamEndCapture)(capturing, &graph), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
  void* const block = take_on(pool, 512 * kMiB, stream);
  ASSERT_EQ(cistern_pool_deallocate_on(pool, block, stream), CISTERN_OK);
  void* const asked = take(pool, 1000);
  EXPECT_GE(statistics(pool).segment_bytes, 512 * kMiB);
  lost.abandon();
  EXPECT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
  give(pool, asked);
  EXPECT_EQ(cistern_trim(CISTERN_DEVICE, 0, nullptr), CISTERN_OK);
  EXPECT_EQ(statistics(pool).segment_bytes, 0u);
  for (CUstream each : {capturing, stream}) EXPECT_EQ(DRIVER_V2(cuStreamDestroy)(each), CUDA_SUCCESS);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_F(SegmentsBesideTheDriver, GoWithTheirContext) {
  CUcontext primary = nullptr, own = nullptr;
  EXPECT_EQ(DRIVER(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
  cistern_pool* const pool = make("context");
  const std::uint64_t reserved = figures().reserved_bytes;
  ASSERT_EQ(make_context(&own), CUDA_SUCCESS);
  void *const held = take(pool, 1000), *const freed = take(pool, 1000);
  give(pool, freed);
  EXPECT_EQ(DRIVER_V2(cuCtxDestroy)(own), CUDA_SUCCESS);
  EXPECT_EQ(figures().reserved_bytes, reserved);
  EXPECT_EQ(statistics(pool).segments, 0u);
  EXPECT_NE(cistern_pool_deallocate(pool, held, nullptr), CISTERN_OK);
  ASSERT_EQ(make_context(&own), CUDA_SUCCESS);
  char text[8] = "there";
  void* const block = take(pool, 1000);
  EXPECT_EQ(DRIVER_V2(cuMemcpyHtoD)(address(block), text, sizeof text), CUDA_SUCCESS);
  EXPECT_EQ(statistics(pool).segments, 1u);
  EXPECT_EQ(statistics(pool).segments_made, 2u) << "the other went with its context";
  give(pool, block);
  EXPECT_EQ(DRIVER_V2(cuCtxDestroy)(own), CUDA_SUCCESS);
  DRIVER(cuCtxSetCurrent)(primary);
}

// A program that links the library does not show the end of a context. The driver gives its addresses to the next one.
TEST_F(Segments, OfContextsThatComeAndGoAreTheirOwn) {
  CUcontext primary = nullptr, own = nullptr;
  EXPECT_EQ(DRIVER(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
  cistern_pool* const pool = make("lives");
  void* const kept = take(pool, 1000);
  for (int life = 0; life < 5; ++life) {
    ASSERT_EQ(make_context(&own), CUDA_SUCCESS);
    const std::uint64_t before = figures().live_bytes;
    void* const block = take(pool, 5 * kMiB);
    EXPECT_EQ(figures().live_bytes, before + 5 * kMiB);
    give(pool, block);
    EXPECT_EQ(figures().live_bytes, before);
    EXPECT_EQ(DRIVER_V2(cuCtxDestroy)(own), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
  }
  give(pool, kept);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// A graph keeps the addresses of the blocks that were allocated while its streams captured: the stream on which the
// capture began, and one that waited for its event.
TEST_F(Segments, HaveNoBlocksForStreamsThatCapture) {
  cistern_pool* const pool = make("captured");
  CUstream origin = nullptr, joined = nullptr;
  CUevent event = nullptr, back = nullptr;
  EXPECT_EQ(DRIVER(cuStreamCreate)(&origin, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamCreate)(&joined, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuEventCreate)(&back, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  void* const kept = take_on(pool, 1000, origin);
  give(pool, take_on(pool, 100'000, origin));  // so that there is room in the segment
  EXPECT_EQ(DRIVER_V2(cuStreamBeginCapture)(origin, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuEventRecord)(event, origin), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamWaitEvent)(joined, event, 0), CUDA_SUCCESS);
  for (const CUstream on : {origin, joined}) {
    const std::uint64_t in_segments = statistics(pool).segment_bytes;
    const long long before = simcuda_value("allocs");
    void* const block = take_on(pool, 100'000, on);
    EXPECT_TRUE(simcuda_value("allocs") > before || is_preloaded()) << "of its own, or one that the shim kept";
    bool is_inside = false;
    struct Asked {
      void* block;
      bool* is_inside;
    } asked{block, &is_inside};
    cistern_pool_visit_segments(
        pool,
        [](void* segment, std::size_t bytes, int, void* user) {
          const Asked& asked = *static_cast<Asked*>(user);
          *asked.is_inside |= address(asked.block) - address(segment) < bytes;
          return 0;
        },
        &asked);
    EXPECT_FALSE(is_inside);
    EXPECT_EQ(statistics(pool).segment_bytes, in_segments);
    EXPECT_EQ(cistern_pool_deallocate_on(pool, block, on), CISTERN_OK);
  }
  EXPECT_EQ(DRIVER(cuEventRecord)(back, joined), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamWaitEvent)(origin, back, 0), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(DRIVER(cuStreamEndCapture)(origin, &graph), CUDA_SUCCESS) << "no question ended the capture";
  EXPECT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
  give(pool, kept);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  for (const CUstream on : {origin, joined}) EXPECT_EQ(DRIVER_V2(cuStreamDestroy)(on), CUDA_SUCCESS);
}

TEST_F(Segments, HaveTheContentsOfABlockThatMovedWhenTheCallReturns) {
  for (const cistern_pool_memory memory : {CISTERN_WHOLE_BLOCKS, CISTERN_SEGMENTS}) {
    cistern::pool pool = cistern::pool::make({.kind = CISTERN_DEVICE, .memory = memory}).value();
    BusyStream stream;
    stream.let_go();
    for (void* const queue : {static_cast<void*>(stream.stream), static_cast<void*>(nullptr)}) {
      void* block = take(pool.get(), 1000);
      EXPECT_EQ(DRIVER(cuMemsetD8Async)(address(block), 6, 1000, stream.stream), CUDA_SUCCESS);
      EXPECT_EQ(DRIVER(cuStreamSynchronize)(stream.stream), CUDA_SUCCESS);
      simcuda_set_value("stream_delay_us", 100'000);
      ASSERT_EQ(cistern_pool_reallocate(pool.get(), &block, kMiB, queue), CISTERN_OK);
      simcuda_set_value("stream_delay_us", 0);
      EXPECT_TRUE(stream.is_idle());
      EXPECT_EQ(DRIVER(cuStreamQuery)(CU_STREAM_LEGACY), CUDA_SUCCESS);
      unsigned char now[1000] = {};
      EXPECT_EQ(DRIVER_V2(cuMemcpyDtoH)(now, address(block), sizeof now), CUDA_SUCCESS);
      EXPECT_EQ(std::count(now, now + sizeof now, 6), 1000);
      give(pool.get(), block);
    }
  }
}

TEST_F(Segments, FollowFurtherStreamsOfAlignedBlocks) {
  for (const cistern_pool_memory memory : {CISTERN_WHOLE_BLOCKS, CISTERN_SEGMENTS}) {
    cistern::pool pool = cistern::pool::make({.kind = CISTERN_DEVICE, .memory = memory}).value();
    BusyStream busy;
    void* block = nullptr;
    ASSERT_EQ(cistern_pool_allocate(pool.get(), 5000, 4096, &block), CISTERN_OK);
    EXPECT_EQ(cistern_block_used_on(block, busy.stream), CISTERN_OK);
    EXPECT_EQ(cistern_block_used_on(static_cast<char*>(block) + 256, busy.stream), CISTERN_INVALID);
    busy.let_go();
    give(pool.get(), block);
  }
}

// --- Four threads, each with its own stream and the null one, beside a model: no two live blocks overlap, and each has
// what was written there last until it goes back.
class Books {
 public:
  bool add(std::uintptr_t first, std::size_t bytes) {
    const std::lock_guard hold(mutex_);
    const auto next = taken_.lower_bound(first);
    const bool fits = (next == taken_.end() || first + bytes <= next->first) &&
                      (next == taken_.begin() || std::prev(next)->second <= first);
    if (fits) taken_[first] = first + bytes;
    return fits;
  }
  void remove(std::uintptr_t first) {
    const std::lock_guard hold(mutex_);
    taken_.erase(first);
  }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, std::uintptr_t> taken_;
};

class Model {
 public:
  Model(cistern_pool* pool, Books& books, unsigned seed) : pool_(pool), books_(books), random_(seed) {
    make_cuda_current();
    wrong += DRIVER(cuStreamCreate)(&own_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
  }
  ~Model() {
    while (!blocks_.empty()) free_one();
    wrong += DRIVER(cuStreamSynchronize)(own_) != CUDA_SUCCESS;
    wrong += DRIVER_V2(cuStreamDestroy)(own_) != CUDA_SUCCESS;
  }
  void step() {
    if (blocks_.size() < 60 && random_() % 2)
      allocate();
    else if (!blocks_.empty())
      free_one();
    if (random_() % 500 == 0) cistern_trim(CISTERN_DEVICE, 0, nullptr);
  }

  static inline std::atomic<int> wrong{0};

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
    CUstream on;
    unsigned char value;
  };
  void allocate() {
    Block block{nullptr, 1 + random_() % (random_() % 4 ? 30'000 : 3'000'000), random_() % 4 ? own_ : nullptr,
                static_cast<unsigned char>(random_())};
    wrong += cistern_pool_allocate_on(pool_, block.bytes, CISTERN_CURRENT, block.on, &block.memory) != CISTERN_OK;
    wrong += !books_.add(reinterpret_cast<std::uintptr_t>(block.memory), block.bytes);
    wrong += DRIVER(cuMemsetD8Async)(address(block.memory), block.value, block.bytes, block.on) != CUDA_SUCCESS;
    blocks_.push_back(block);
  }
  void free_one() {
    const std::size_t which = random_() % blocks_.size();
    const Block block = blocks_[which];
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(which));
    unsigned char ends[2] = {};
    wrong += DRIVER_V2(cuMemcpyDtoHAsync)(&ends[0], address(block.memory), 1, block.on) != CUDA_SUCCESS;
    wrong +=
        DRIVER_V2(cuMemcpyDtoHAsync)(&ends[1], address(block.memory) + block.bytes - 1, 1, block.on) != CUDA_SUCCESS;
    wrong += DRIVER(cuStreamSynchronize)(block.on) != CUDA_SUCCESS;
    wrong += ends[0] != block.value || ends[1] != block.value;
    if (random_() % 2)
      wrong += DRIVER(cuMemsetD8Async)(address(block.memory), 0, block.bytes, block.on) != CUDA_SUCCESS;
    books_.remove(reinterpret_cast<std::uintptr_t>(block.memory));
    const int way = random_() % 4;
    const cistern_status status = way == 0   ? cistern_pool_deallocate(pool_, block.memory, nullptr)
                                  : way == 1 ? cistern_pool_deallocate(pool_, block.memory, block.on)
                                             : cistern_pool_deallocate_on(pool_, block.memory, block.on);
    wrong += status != CISTERN_OK;
  }

  cistern_pool* const pool_;
  Books& books_;
  std::mt19937 random_;
  CUstream own_ = nullptr;
  std::vector<Block> blocks_;
};

TEST_F(Segments, AreTheModelInFourThreads) {
  const unsigned seed = cistern::test::new_seed();
  SCOPED_TRACE("CISTERN_TEST_SEED=" + std::to_string(seed));
  cistern_pool* const pool = make("model");
  simcuda_set_value("stream_delay_us", 5);
  {
    Books books;
    const auto work = [&](unsigned of_thread) {
      return [&, of_thread] {
        Model model(pool, books, seed + of_thread);
        for (int i = 0; i < 1500; ++i) model.step();
      };
    };
    const Beside first(work(1)), second(work(2)), third(work(3)), fourth(work(4));
  }
  simcuda_set_value("stream_delay_us", 0);
  EXPECT_EQ(Model::wrong, 0);
  EXPECT_EQ(statistics(pool).live_bytes, 0u);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// The other device's work uses the block: that the block's own context has ended all of its says nothing.
// This comes last, since blocks wait for the work of all contexts from then on.
TEST_F(Segments, GiveNoBlockAgainBeforeTheWorkOfAnotherDeviceHasEnded) {
  CUcontext other = nullptr, own = nullptr;
  ASSERT_EQ(DRIVER(cuCtxGetCurrent)(&own), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  cistern_pool* const pool = make("of two devices");
  ASSERT_EQ(DRIVER_V2(cuCtxPushCurrent)(other), CUDA_SUCCESS);
  {
    BusyStream there;
    ASSERT_EQ(DRIVER_V2(cuCtxPopCurrent)(nullptr), CUDA_SUCCESS);
    void* const block = take(pool, 5 * kMiB);
    EXPECT_EQ(cistern_pool_deallocate(pool, block, there.stream), CISTERN_OK);
    void* const after_a_wait = take(pool, 5 * kMiB);
    EXPECT_NE(after_a_wait, block);
    give(pool, after_a_wait);
    void *const one = take(pool, 5 * kMiB), *const two = take(pool, 5 * kMiB);
    EXPECT_TRUE(one != block && two != block) << "work may still use it";
    there.let_go();
    for (void* const each : {one, two}) give(pool, each);
  }
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  EXPECT_EQ(DRIVER(cuDevicePrimaryCtxRelease)(1), CUDA_SUCCESS);
}

}  // namespace
