// The simulated driver's own tests: the time that copies take, and what shares the link. A machine that is busy may be
// late but is never early: times are bounded below, and above only the best of several tries.
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/simcuda/checks/driver_test_support.hpp"

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kDriverBuffer = 4 * kMiB;

double milliseconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// The least of several times, once it is under the bound.
double best(double bound, const std::function<void()>& work) {
  double least = milliseconds(work);
  for (int tries = 1; tries < 10 && least >= bound; ++tries) least = std::min(least, milliseconds(work));
  return least;
}

constexpr double time_of(size_t bytes, double megabytes_per_second) {
  return static_cast<double>(bytes) * 1e-3 / megabytes_per_second;
}

void set_link(long long megabytes_per_second) {
  simcuda_set("link_to_device_mbps", megabytes_per_second);
  simcuda_set("link_to_host_mbps", megabytes_per_second);
}

std::vector<unsigned char> pattern(size_t bytes, unsigned seed) {
  std::vector<unsigned char> made(bytes);
  for (size_t index = 0; index < bytes; ++index)
    made[index] = static_cast<unsigned char>(seed + index * 7 + index / 4096 + index / kMiB);
  return made;
}

std::vector<unsigned char> bytes_at(CUdeviceptr memory, size_t bytes) {
  std::vector<unsigned char> seen(bytes);
  EXPECT_CU(CUDA_SUCCESS, cuMemcpyDtoH(seen.data(), memory, bytes));
  return seen;
}

// Holds a stream up until it is told to go on.
struct Gate {
  std::atomic<bool> open{false};
  void close(CUstream stream) {
    ASSERT_CU(cuLaunchHostFunc(
        stream,
        [](void* gate) {
          while (!static_cast<Gate*>(gate)->open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        this));
  }
};

TEST_F(Driver, CopiesTakeTheLinksTimeAndEventsShowIt) {
  constexpr size_t kBytes = 2 * kMiB;
  constexpr double kTime = time_of(kBytes, 40);
  const CUdeviceptr memory = allocate(kBytes);
  void* pinned = pin(kBytes);
  const CUstream one = stream();
  const CUevent start = event(), middle = event(), end = event();
  set_link(40);
  ASSERT_CU(cuEventRecord(start, one));
  ASSERT_CU(cuMemcpyHtoDAsync(memory, pinned, kBytes, one));
  ASSERT_CU(cuEventRecord(middle, one));
  ASSERT_CU(cuMemcpyDtoHAsync(pinned, memory, kBytes, one));
  ASSERT_CU(cuEventRecord(end, one));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(end));
  ASSERT_CU(cuEventSynchronize(end));
  float to_device = 0, to_host = 0;
  ASSERT_CU(cuEventElapsedTime(&to_device, start, middle));
  ASSERT_CU(cuEventElapsedTime(&to_host, middle, end));
  EXPECT_GE(to_device, kTime * 0.99);
  EXPECT_GE(to_host, kTime * 0.99);
  EXPECT_GE(milliseconds([&] { cuMemcpyHtoD(memory, pinned, kBytes); }), kTime * 0.99);
  EXPECT_LT(best(kTime * 1.8, [&] { cuMemcpyDtoH(pinned, memory, kBytes); }), kTime * 1.8);
}

TEST_F(Driver, AnAsynchronousPinnedCopyDoesNotBlockItsCaller) {
  constexpr size_t kBytes = 2 * kMiB;
  const CUdeviceptr memory = allocate(kBytes);
  void* pinned = pin(kBytes);
  const CUstream one = stream();
  set_link(20);
  double least = 1e9;
  for (int tries = 0; tries < 10 && least >= 50; ++tries) {
    least = std::min(least, milliseconds([&] { cuMemcpyHtoDAsync(memory, pinned, kBytes, one); }));
    ASSERT_CU(cuStreamSynchronize(one));
  }
  EXPECT_LT(least, 50) << "of " << time_of(kBytes, 20);
}

TEST_F(Driver, TheSourceOfAPinnedCopyIsReadUntilItsEnd) {
  constexpr size_t kBytes = 4 * kMiB;
  const CUdeviceptr memory = allocate(kBytes);
  auto* pinned = static_cast<unsigned char*>(pin(kBytes));
  const CUstream one = stream();
  set_link(20);
  bool seen = false;
  for (int tries = 0; tries < 10 && !seen; ++tries) {
    std::memset(pinned, 1, kBytes);
    ASSERT_CU(cuMemcpyHtoDAsync(memory, pinned, kBytes, one));
    pinned[kBytes - 1] = 2;
    ASSERT_CU(cuStreamSynchronize(one));
    seen = bytes_at(memory + kBytes - 1, 1)[0] == 2;
  }
  EXPECT_TRUE(seen);
}

TEST_F(Driver, StreamsShareTheEngineOfADirection) {
  constexpr size_t kBytes = 2 * kMiB;
  constexpr double kTime = time_of(kBytes, 40);
  const CUdeviceptr memory = allocate(4 * kBytes);
  auto* pinned = static_cast<unsigned char*>(pin(4 * kBytes));
  const CUstream streams[] = {stream(), stream()};
  const auto copy_both = [&](bool one_direction) {
    for (size_t index = 0; index < 2; ++index) {
      void* host = pinned + index * kBytes;
      const CUdeviceptr device = memory + index * kBytes;
      if (index == 0 || one_direction)
        cuMemcpyHtoDAsync(device, host, kBytes, streams[index]);
      else
        cuMemcpyDtoHAsync(host, device, kBytes, streams[index]);
    }
    for (const CUstream one : streams) cuStreamSynchronize(one);
  };
  set_link(40);
  EXPECT_GE(milliseconds([&] { copy_both(true); }), kTime * 1.95);
  EXPECT_LT(best(kTime * 1.8, [&] { copy_both(false); }), kTime * 1.8);
  simcuda_set("copy_engines", 2);
  EXPECT_LT(best(kTime * 1.8, [&] { copy_both(false); }), kTime * 1.8);
  simcuda_set("copy_engines", 1);
  EXPECT_GE(milliseconds([&] { copy_both(false); }), kTime * 1.95);
}

TEST_F(Driver, PageableCopiesPayTheHostsCopyAndTheLink) {
  constexpr size_t kBytes = 9 * kMiB;
  constexpr double kTime = time_of(kBytes, 400), kPageable = 3 * kTime;
  const CUdeviceptr memory = allocate(kBytes);
  std::vector<unsigned char> host = pattern(kBytes, 1);
  const CUstream one = stream();
  set_link(400);
  simcuda_set("pageable_copy_mbps", 200);
  EXPECT_GE(milliseconds([&] { cuMemcpyHtoD(memory, host.data(), kBytes); }), kPageable * 0.99);
  EXPECT_EQ(host, bytes_at(memory, kBytes));
  EXPECT_GE(milliseconds([&] { cuMemcpyDtoH(host.data(), memory, kBytes); }), kPageable * 0.99);
  EXPECT_GE(milliseconds([&] { cuMemcpyDtoHAsync(host.data(), memory, kBytes, one); }), kPageable * 0.99);
  EXPECT_EQ(pattern(kBytes, 1), host);
  EXPECT_GE(milliseconds([&] {
              cuMemcpyHtoDAsync(memory, host.data(), kBytes, one);
              cuStreamSynchronize(one);
            }),
            kPageable * 0.99);
  EXPECT_LT(best(kPageable * 1.5, [&] { cuMemcpyHtoD(memory, host.data(), kBytes); }), kPageable * 1.5);
  // Registered it is no longer pageable.
  ASSERT_CU(cuMemHostRegister(host.data(), kBytes, 0));
  EXPECT_LT(best(kTime * 2, [&] { cuMemcpyHtoD(memory, host.data(), kBytes); }), kTime * 2);
  ASSERT_CU(cuMemHostUnregister(host.data()));
}

TEST_F(Driver, PageableCopiesOfAllThreadsAndStreamsTakeTurns) {
  constexpr size_t kBytes = 2 * kMiB;
  constexpr double kTime = time_of(kBytes, 100) + time_of(kBytes, 100);
  set_link(100);
  simcuda_set("pageable_copy_mbps", 100);
  const auto copy_in_two_threads = [&](bool to_host) {
    std::vector<std::thread> threads;
    for (const bool back : {false, to_host})
      threads.emplace_back([&, back] {
        cuCtxSetCurrent(context);
        const CUdeviceptr memory = allocate(kBytes);
        std::vector<unsigned char> host(kBytes);
        const CUstream one = stream();
        EXPECT_CU(CUDA_SUCCESS, back ? cuMemcpyDtoHAsync(host.data(), memory, kBytes, one)
                                     : cuMemcpyHtoDAsync(memory, host.data(), kBytes, one));
        EXPECT_CU(CUDA_SUCCESS, cuStreamSynchronize(one));
      });
    for (std::thread& thread : threads) thread.join();
  };
  EXPECT_GE(milliseconds([&] { copy_in_two_threads(false); }), kTime * 1.95);
  EXPECT_GE(milliseconds([&] { copy_in_two_threads(true); }), kTime * 1.95);
}

TEST_F(Driver, APageableSourceMayBeOverwrittenOnReturn) {
  const CUstream one = stream();
  set_link(400);
  for (const long long rate : {0, 400}) {
    simcuda_set("pageable_copy_mbps", rate);
    for (const size_t bytes : {size_t{4}, kDriverBuffer, kDriverBuffer + 1, 9 * kMiB}) {
      SCOPED_TRACE(bytes);
      const CUdeviceptr memory = allocate(bytes);
      const auto expected = pattern(bytes, 3);
      auto host = expected;
      Gate gate;
      gate.close(one);
      std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        gate.open = true;
      });
      ASSERT_CU(cuMemcpyHtoDAsync(memory, host.data(), bytes, one));
      EXPECT_TRUE(gate.open || !rate || bytes <= kDriverBuffer) << "it did not wait for the work before";
      std::fill(host.begin(), host.end(), 0);
      opener.join();
      ASSERT_CU(cuStreamSynchronize(one));
      EXPECT_TRUE(expected == bytes_at(memory, bytes));
      ASSERT_CU(cuMemFree(memory));
    }
  }
}

// What fits in the buffer does not wait for the stream, and another stream's copies do not wait for it either.
TEST_F(Driver, APageableCopyThatFitsWaitsForNoStream) {
  const CUdeviceptr memory = allocate(2 * kDriverBuffer);
  std::vector<unsigned char> host(kDriverBuffer, 5);
  const CUstream one = stream(), two = stream();
  set_link(4000);
  simcuda_set("pageable_copy_mbps", 4000);
  Gate gate;
  gate.close(one);
  ASSERT_CU(cuMemcpyHtoDAsync(memory, host.data(), kDriverBuffer, one));
  ASSERT_CU(cuMemcpyHtoDAsync(memory + kDriverBuffer, host.data(), kDriverBuffer, two));
  ASSERT_CU(cuStreamSynchronize(two));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(one));
  gate.open = true;
  ASSERT_CU(cuStreamSynchronize(one));
  EXPECT_EQ(0x05050505U, word_at(memory + kDriverBuffer - 4));
}

TEST_F(Driver, SlowCopiesKeepTheOrderOfTheirStream) {
  constexpr size_t kBytes = 5 * kMiB;
  const CUdeviceptr memory = allocate(kBytes);
  const CUfunction store = store_kernel();
  const CUstream one = stream();
  auto* pinned = static_cast<unsigned char*>(pin(kBytes));
  std::memset(pinned, 2, kBytes);
  std::vector<unsigned char> first(kBytes, 1), last(kBytes);
  set_link(1000);
  simcuda_set("pageable_copy_mbps", 1000);
  const CUdeviceptr end = memory + kBytes - 4;
  ASSERT_CU(launch_store(store, end, 9, one));
  ASSERT_CU(cuMemcpyHtoDAsync(memory, first.data(), kBytes, one));
  ASSERT_CU(launch_store(store, memory, 7, one));
  ASSERT_CU(cuMemcpyHtoDAsync(memory + kMiB, pinned, kBytes - kMiB - 4, one));
  ASSERT_CU(cuMemcpyDtoHAsync(last.data(), memory, kBytes, one));
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(one));
  EXPECT_EQ(7, last[0]);
  EXPECT_EQ(0, last[3]);
  EXPECT_EQ(1, last[4]);
  EXPECT_EQ(1, last[kMiB - 1]);
  EXPECT_EQ(2, last[kMiB]);
  EXPECT_EQ(2, last[kBytes - 5]);
  EXPECT_EQ(1, last[kBytes - 4]);
}

// Rows that lie across the ends of the driver's buffer.
TEST_F(Driver, ShapedCopiesGoThroughTheBufferToo) {
  constexpr size_t kWidth = 5000, kRows = 1700, kHostPitch = 5003, kDevicePitch = 5120;
  const CUdeviceptr memory = allocate(kDevicePitch * kRows);
  const auto source = pattern(kHostPitch * kRows, 11);
  std::vector<unsigned char> host = source, back(kHostPitch * kRows, 0xEE);
  const CUstream one = stream();
  set_link(2000);
  simcuda_set("pageable_copy_mbps", 2000);
  CUDA_MEMCPY2D shape{};
  shape.srcMemoryType = CU_MEMORYTYPE_HOST;
  shape.srcHost = host.data();
  shape.srcPitch = kHostPitch;
  shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.dstDevice = memory;
  shape.dstPitch = kDevicePitch;
  shape.WidthInBytes = kWidth;
  shape.Height = kRows;
  ASSERT_CU(cuMemcpy2DAsync(&shape, one));
  std::fill(host.begin(), host.end(), 0);
  shape.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = memory;
  shape.srcPitch = kDevicePitch;
  shape.dstMemoryType = CU_MEMORYTYPE_HOST;
  shape.dstHost = back.data();
  shape.dstPitch = kHostPitch;
  ASSERT_CU(cuMemcpy2DAsync(&shape, one));
  auto expected = source;
  for (size_t row = 0; row < kRows; ++row) std::memset(&expected[row * kHostPitch + kWidth], 0xEE, kHostPitch - kWidth);
  EXPECT_TRUE(expected == back);
}

TEST_F(Driver, CoherentDevicesCopyPageableMemoryAtTheLinksSpeed) {
  constexpr size_t kBytes = 8 * kMiB;
  constexpr double kTime = time_of(kBytes, 200);
  const CUdeviceptr memory = allocate(kBytes);
  const std::vector<unsigned char> host = pattern(kBytes, 4);
  const auto attribute = [](CUdevice_attribute asked) {
    int value = -1;
    EXPECT_CU(CUDA_SUCCESS, cuDeviceGetAttribute(&value, asked, 0));
    return value;
  };
  set_link(200);
  simcuda_set("pageable_copy_mbps", 100);
  for (const int coherent : {0, 1}) {
    simcuda_set("coherent", coherent);
    EXPECT_EQ(coherent, attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS));
    EXPECT_EQ(coherent, attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES));
  }
  EXPECT_GE(milliseconds([&] { cuMemcpyHtoD(memory, host.data(), kBytes); }), kTime * 0.99);
  EXPECT_LT(best(kTime * 2, [&] { cuMemcpyHtoD(memory, host.data(), kBytes); }), kTime * 2);
  EXPECT_TRUE(host == bytes_at(memory, kBytes));
}

// A file of the folder that the test runs in, or shared memory.
class Mapped {
 public:
  explicit Mapped(bool of_file) {
    char name[] = "mapped-XXXXXX";
    const int file = of_file ? mkstemp(name) : memfd_create("mapped", MFD_CLOEXEC);
    if (of_file) unlink(name);
    struct statfs found {};
    fstatfs(file, &found);
    of_disk = found.f_type != TMPFS_MAGIC;
    if (ftruncate(file, kBytes) != 0) std::abort();
    at = static_cast<unsigned char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
  }
  ~Mapped() { munmap(at, kBytes); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  static constexpr size_t kBytes = 2 * kMiB;
  unsigned char* at;
  bool of_disk;
};

TEST_F(Driver, PagesOfAMappedFileHaveAPriceOfTheirOwn) {
  constexpr double kPages = Mapped::kBytes / 4096 * 0.04, kLink = time_of(Mapped::kBytes, 1000);
  const CUdeviceptr memory = allocate(Mapped::kBytes);
  const CUstream one = stream();
  const Mapped file(true), shared(false);
  if (!file.of_disk) GTEST_SKIP() << "the folder is in memory";
  set_link(1000);
  simcuda_set("file_page_ns", 40'000);
  for (const int coherent : {0, 1}) {
    simcuda_set("coherent", coherent);
    simcuda_set("pageable_copy_mbps", 1000);
    const auto there = [&](const Mapped& from) { cuMemcpyHtoDAsync(memory, from.at, Mapped::kBytes, one); };
    const auto back = [&](const Mapped& to) { cuMemcpyDtoH(to.at, memory, Mapped::kBytes); };
    EXPECT_GE(milliseconds([&] { there(file); }), kPages * 0.99) << "the call is not blocked, coherent " << coherent;
    EXPECT_GE(milliseconds([&] { back(file); }), kPages * 0.99);
    EXPECT_LT(best(kPages / 2, [&] { there(shared), cuStreamSynchronize(one); }), kPages / 2);
    EXPECT_LT(best(kPages / 2, [&] { back(shared); }), kPages / 2);
    EXPECT_GE(milliseconds([&] { back(shared); }), kLink * 0.99);
  }
  const auto expected = pattern(Mapped::kBytes, 5);
  std::copy(expected.begin(), expected.end(), file.at);
  ASSERT_CU(cuMemcpyHtoDAsync(memory, file.at, Mapped::kBytes, one));
  ASSERT_CU(cuStreamSynchronize(one));
  EXPECT_TRUE(expected == bytes_at(memory, Mapped::kBytes));
}

TEST_F(Driver, CoherentDevicesMayCopyPageableMemoryMoreSlowlyThanPinned) {
  constexpr size_t kBytes = 2 * kMiB;
  constexpr double kTime = time_of(kBytes, 100);
  const CUdeviceptr memory = allocate(kBytes);
  std::vector<unsigned char> host = pattern(kBytes, 4);
  void* const pinned = pin(kBytes);
  const CUstream one = stream();
  set_link(1000);
  simcuda_set("coherent", 1);
  simcuda_set("coherent_copy_mbps", 100);
  EXPECT_GE(milliseconds([&] { cuMemcpyHtoD(memory, host.data(), kBytes); }), kTime * 0.99);
  EXPECT_GE(milliseconds([&] { cuMemcpyHtoDAsync(memory, host.data(), kBytes, one), cuStreamSynchronize(one); }),
            kTime * 0.99);
  EXPECT_LT(best(kTime / 2, [&] { cuMemcpyHtoD(memory, pinned, kBytes); }), kTime / 2);
}

TEST_F(Driver, CountersTellPageableFromPinnedBytes) {
  const CUdeviceptr memory = allocate(200);
  std::vector<unsigned char> host(100);
  void* pinned = pin(100);
  const CUstream one = stream();
  for (const long long rate : {0, 1000}) {
    set_link(rate);
    simcuda_set("pageable_copy_mbps", rate);
    const long long pageable = simcuda_get("pageable_bytes"), locked = simcuda_get("pinned_bytes");
    ASSERT_CU(cuMemcpyHtoD(memory, host.data(), 100));
    ASSERT_CU(cuMemcpyHtoDAsync(memory, host.data(), 10, one));
    ASSERT_CU(cuMemcpyDtoHAsync(host.data(), memory, 1, one));
    EXPECT_EQ(pageable + 111, simcuda_get("pageable_bytes"));
    EXPECT_EQ(locked, simcuda_get("pinned_bytes"));
    ASSERT_CU(cuMemcpyHtoD(memory, pinned, 50));
    ASSERT_CU(cuMemcpyDtoHAsync(pinned, memory, 5, one));
    ASSERT_CU(cuStreamSynchronize(one));
    EXPECT_EQ(locked + 55, simcuda_get("pinned_bytes"));
    ASSERT_CU(cuMemHostRegister(host.data(), 100, 0));
    ASSERT_CU(cuMemcpyHtoD(memory, host.data(), 7));
    ASSERT_CU(cuMemHostUnregister(host.data()));
    EXPECT_EQ(locked + 62, simcuda_get("pinned_bytes"));
    // Neither within the device nor on the host.
    ASSERT_CU(cuMemcpyDtoD(memory + 100, memory, 100));
    ASSERT_CU(cuMemcpy(reinterpret_cast<CUdeviceptr>(pinned), reinterpret_cast<CUdeviceptr>(host.data()), 100));
    ASSERT_CU(cuCtxSynchronize());
    EXPECT_EQ(pageable + 111, simcuda_get("pageable_bytes"));
    EXPECT_EQ(locked + 62, simcuda_get("pinned_bytes"));
  }
}

TEST_F(Driver, CopiesOfAGraphTakeTheirTimeAtEachLaunch) {
  constexpr size_t kBytes = kMiB;
  constexpr double kTime = time_of(kBytes, 100);
  const CUdeviceptr memory = allocate(kBytes);
  std::vector<unsigned char> host(kBytes, 1);
  const CUstream one = stream();
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  set_link(100);
  simcuda_set("pageable_copy_mbps", 100);
  const long long before = simcuda_get("pageable_bytes");
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(cuMemcpyHtoDAsync(memory, host.data(), kBytes, one));
  ASSERT_CU(cuStreamEndCapture(one, &graph));
  ASSERT_CU(cuGraphInstantiate(&executable, graph, 0));
  EXPECT_EQ(before, simcuda_get("pageable_bytes"));
  std::fill(host.begin(), host.end(), 2);
  EXPECT_GE(milliseconds([&] {
              cuGraphLaunch(executable, one);
              cuGraphLaunch(executable, one);
              cuStreamSynchronize(one);
            }),
            kTime * 4 * 0.99);
  EXPECT_EQ(0x02020202U, word_at(memory));
  EXPECT_EQ(before + 2 * static_cast<long long>(kBytes) + 4, simcuda_get("pageable_bytes"));
  ASSERT_CU(cuGraphExecDestroy(executable));
  ASSERT_CU(cuGraphDestroy(graph));
}

TEST_F(Driver, LockingPagesTakesTime) {
  constexpr size_t kBytes = kMiB;  // 256 pages
  std::vector<unsigned char> host(kBytes + 4096);
  void* pinned = nullptr;
  void* first_page = host.data() + (4096 - reinterpret_cast<uintptr_t>(host.data()) % 4096);
  simcuda_set("page_lock_ns", 40'000);
  EXPECT_GE(milliseconds([&] { ASSERT_CU(cuMemHostAlloc(&pinned, kBytes, 0)); }), 10.2);
  EXPECT_GE(milliseconds([&] { ASSERT_CU(cuMemFreeHost(pinned)); }), 5.1);
  EXPECT_GE(milliseconds([&] { ASSERT_CU(cuMemAllocHost(&pinned, kBytes)); }), 10.2);
  EXPECT_GE(milliseconds([&] { ASSERT_CU(cuMemFreeHost(pinned)); }), 5.1);
  EXPECT_GE(milliseconds([&] { ASSERT_CU(cuMemHostRegister(first_page, kBytes, 0)); }), 10.2);
  EXPECT_GE(milliseconds([&] { ASSERT_CU(cuMemHostUnregister(first_page)); }), 5.1);
}

}  // namespace
