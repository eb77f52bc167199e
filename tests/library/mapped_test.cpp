// Files on a device, chunk by chunk: eight times as large as the device's memory, written back, and with all that can
// become of a file meanwhile.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cistern/mapped_file.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/library/kinds.hpp"
#include "tests/simcuda/simcuda.h"

namespace {

using cistern::mapped_file;

constexpr std::size_t kDeviceBytes = 16 * kMiB, kChunk = 2 * kMiB;

// Before the driver is initialised.
const bool device_is_small = [] {
  setenv("SIMCUDA_MEMORY", std::to_string(kDeviceBytes).c_str(), 1);
  return true;
}();

class MappedTest : public testing::TestWithParam<cistern_kind> {
 protected:
  void SetUp() override {
    if (GetParam() == CISTERN_DEVICE && !make_cuda_current()) GTEST_SKIP() << "no simulated driver";
    if (GetParam() == CISTERN_OPENCL) {
      ASSERT_TRUE(opencl_context());
      cl_device_id device = nullptr;
      clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
      queue_ = clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr);
    }
    const char* const folder = getenv("TMPDIR");
    path_ = std::string(folder ? folder : "/tmp") + "/cistern-mapped-XXXXXX";
    const int file = mkstemp(path_.data());
    ASSERT_GE(file, 0);
    close(file);
  }
  void TearDown() override {
    if (queue_) clReleaseCommandQueue(queue_);
    if (!path_.empty()) unlink(path_.c_str());
    simcuda_set_value("fail_every", 0);
  }
  cistern::place place() const {
    if (GetParam() == CISTERN_DEVICE) return cistern::on_device();
    return cistern::on_opencl(reinterpret_cast<_cl_context*>(opencl_context()),
                              reinterpret_cast<_cl_command_queue*>(queue_));
  }
  // Each number is its place.
  void write_numbers(std::size_t count) {
    std::vector<std::uint32_t> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<std::uint32_t>(i);
    const int file = open(path_.c_str(), O_WRONLY | O_TRUNC);
    ASSERT_EQ(write(file, all.data(), count * 4), static_cast<ssize_t>(count * 4));
    close(file);
  }
  std::vector<std::uint32_t> numbers() {
    struct stat now;
    stat(path_.c_str(), &now);
    std::vector<std::uint32_t> all(static_cast<std::size_t>(now.st_size) / 4);
    const int file = open(path_.c_str(), O_RDONLY);
    EXPECT_EQ(read(file, all.data(), all.size() * 4), now.st_size);
    close(file);
    return all;
  }
  template <class T>
  static cistern_part part_of(const cistern::chunk<T>& of, std::size_t first = 0) {
    if (of.memory_object()) return {sizeof(cistern_part), CISTERN_OPENCL, of.memory_object(), first * 4};
    return {sizeof(cistern_part), CISTERN_DEVICE, const_cast<std::remove_const_t<T>*>(of.data()), first * 4};
  }
  void* queue() const { return queue_; }
  // What the device has of it.
  template <class T>
  std::vector<std::uint32_t> seen(const cistern::chunk<T>& of) {
    std::vector<std::uint32_t> all(of.size());
    const cistern_part source = part_of(of), target{sizeof(cistern_part), CISTERN_HOST, all.data(), 0};
    demand(cistern_enqueue_copy(&target, &source, all.size() * 4, 0, queue()));
    if (queue()) demand(cistern_queue_wait(CISTERN_OPENCL, 0, queue()));
    return all;
  }
  template <class T>
  void set(const cistern::chunk<T>& of, std::size_t first, std::size_t count, std::uint32_t value) {
    const cistern_part target = part_of(of, first);
    demand(cistern_enqueue_fill(&target, &value, sizeof value, count * 4, 0, queue()));
  }
  static cistern::mapped_options options(bool writable) {
    cistern::mapped_options of;
    of.chunk_bytes = kChunk;
    of.writable = writable;
    return of;
  }
  std::string path_;
  cl_command_queue queue_ = nullptr;
};

TEST_P(MappedTest, EightTimesTheDevicesMemory) {
  const std::size_t count = 8 * kDeviceBytes / 4 + 1000;  // and a last chunk that is shorter
  write_numbers(count);
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(true)).value();
  EXPECT_EQ(file.size(), count);
  EXPECT_EQ(file.chunks(), 65u);
  const std::size_t each = file.chunk_size();
  for (std::uint64_t i = 0; i < file.chunks(); ++i) {
    auto chunk = file.acquire_mut(i).value();
    ASSERT_EQ(chunk.size(), i == 64 ? 1000u : each);
    const std::vector<std::uint32_t> all = seen(chunk);
    for (std::size_t k = 0; k < all.size(); ++k) ASSERT_EQ(all[k], i * each + k) << i;
    set(chunk, 10, 5, static_cast<std::uint32_t>(i + 7));
  }
  const cistern_mapped_info before = file.info();
  EXPECT_EQ(before.reads, 65u) << "each chunk once";
  EXPECT_EQ(before.hits, 0u);
  ASSERT_TRUE(file.close());
  const std::vector<std::uint32_t> after = numbers();
  ASSERT_EQ(after.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t chunk = i / each, k = i % each;
    ASSERT_EQ(after[i], k >= 10 && k < 15 ? chunk + 7 : i);
  }
}

TEST_P(MappedTest, RandomAccessesBesideAModel) {
  const unsigned seed = std::random_device{}();
  fprintf(stderr, "seed %u\n", seed);
  std::mt19937 random(seed);
  constexpr std::size_t kCount = 10'001, kEach = 1000;
  write_numbers(kCount);
  std::vector<std::uint32_t> model = numbers();
  cistern::mapped_options of = options(true);
  of.chunk_bytes = kEach * 4 + 3;  // rounded down
  of.chunks_on_device = 3;
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), of).value();
  ASSERT_EQ(file.chunks(), 11u);
  for (int step = 0; step < 3000; ++step) {
    const std::uint64_t i = random() % 11;
    const std::size_t begin = i * kEach, count = std::min(kEach, kCount - begin);
    const unsigned what = random() % 8;
    if (what < 4) {
      auto chunk = file.acquire(i).value();
      ASSERT_EQ(seen(chunk), std::vector<std::uint32_t>(model.begin() + static_cast<long>(begin),
                                                        model.begin() + static_cast<long>(begin + count)));
    } else if (what < 7) {
      const bool all = what == 6;
      auto chunk = all ? file.acquire_overwrite(i).value() : file.acquire_mut(i).value();
      const std::size_t first = all ? 0 : random() % count, some = all ? count : 1 + random() % (count - first);
      const auto value = static_cast<std::uint32_t>(random());
      set(chunk, first, some, value);
      std::fill_n(model.begin() + static_cast<long>(begin + first), some, value);
    } else if (random() % 10 == 0) {
      ASSERT_TRUE(file.flush());
      ASSERT_EQ(numbers(), model);
    }
  }
  ASSERT_TRUE(file.close());
  EXPECT_EQ(numbers(), model);
}

TEST_P(MappedTest, ReadOnlyIsReadOnly) {
  write_numbers(1000);
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(false)).value();
  EXPECT_EQ(file.acquire_mut(0).status(), CISTERN_DENIED);
  EXPECT_EQ(file.acquire_overwrite(0).status(), CISTERN_DENIED);
  EXPECT_EQ(seen(file.acquire(0).value())[999], 999u);
  EXPECT_TRUE(file.flush());
  chmod(path_.c_str(), 0400);
  if (geteuid())
    EXPECT_EQ(mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(true)).status(), CISTERN_DENIED);
}

TEST_P(MappedTest, WrongFilesAreRefused) {
  write_numbers(1000);
  const auto status = [&](const std::string& path) {
    return mapped_file<std::uint32_t>::open(path.c_str(), place(), options(false)).status();
  };
  EXPECT_EQ(status(path_ + ".none"), CISTERN_NOT_FOUND);
  EXPECT_EQ(status("/tmp"), CISTERN_INVALID);
  EXPECT_EQ(status("/dev/null"), CISTERN_INVALID);
  EXPECT_EQ(mapped_file<std::uint32_t>::open("/tmp", place(), options(true)).status(), CISTERN_INVALID);
  EXPECT_EQ(mapped_file<char>::open(nullptr, place()).status(), CISTERN_INVALID);
  ASSERT_EQ(truncate(path_.c_str(), 999), 0);
  EXPECT_EQ(status(path_), CISTERN_MISMATCH) << "no whole number of elements";
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  auto empty = mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(false)).value();
  EXPECT_EQ(empty.chunks(), 0u);
  EXPECT_EQ(empty.acquire(0).status(), CISTERN_BOUNDS);
}

TEST_P(MappedTest, IsMadeAndExtended) {
  unlink(path_.c_str());
  cistern::mapped_options of = options(true);
  of.elements = kChunk / 2;  // two chunks
  {
    auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), of).value();
    ASSERT_EQ(file.chunks(), 2u);
    auto chunk = file.acquire_overwrite(1).value();
    set(chunk, 0, chunk.size(), 5);
  }
  const std::vector<std::uint32_t> all = numbers();
  ASSERT_EQ(all.size(), kChunk / 2);
  EXPECT_EQ(all.front(), 0u);
  EXPECT_EQ(all[kChunk / 4], 5u);
  EXPECT_EQ(all.back(), 5u);
}

TEST_P(MappedTest, TruncatedMeanwhile) {
  write_numbers(3 * kChunk / 4);
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(true)).value();
  {
    auto chunk = file.acquire_mut(0).value();
    set(chunk, 0, 10, 77);
  }
  ASSERT_EQ(truncate(path_.c_str(), kChunk / 2), 0);
  EXPECT_EQ(file.acquire(2).status(), CISTERN_TRUNCATED) << "it is to be read there";
  const auto flushed = file.flush();
  EXPECT_EQ(flushed.status(), CISTERN_TRUNCATED) << "the first chunk is not written beyond the file's new end";
  struct stat now;
  stat(path_.c_str(), &now);
  EXPECT_EQ(now.st_size, static_cast<off_t>(kChunk / 2));
  EXPECT_EQ(file.close().status(), CISTERN_TRUNCATED);
  EXPECT_EQ(file.info().dirty_chunks, 1u) << "still on the device";
  ASSERT_EQ(truncate(path_.c_str(), 3 * kChunk), 0);
  ASSERT_TRUE(file.close());
  EXPECT_EQ(numbers()[9], 77u);
}

// Two dirty chunks lie behind the file's new end. They stay on the device; all others are read, written and written
// back.
TEST_P(MappedTest, ChunksThatCannotBeWrittenBlockNoOthers) {
  constexpr std::size_t kEach = 1000, kWhole = 6;
  write_numbers(8 * kEach);
  cistern::mapped_options of = options(true);
  of.chunk_bytes = kEach * 4;
  of.chunks_on_device = 4;
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), of).value();
  for (const std::uint64_t bad : {6, 7}) set(file.acquire_mut(bad).value(), 0, kEach, static_cast<std::uint32_t>(bad));
  ASSERT_EQ(truncate(path_.c_str(), kWhole * kEach * 4), 0);
  for (int round = 0; round < 3; ++round)
    for (std::uint64_t i = 0; i < kWhole; ++i) {
      auto chunk = file.acquire_mut(i);
      ASSERT_TRUE(chunk) << i << " is whole";
      EXPECT_EQ(cistern_native_error(), 0);
      ASSERT_EQ(seen(*chunk)[1], i * kEach + 1);
      set(*chunk, 0, 1, static_cast<std::uint32_t>(i + 100));
    }
  EXPECT_EQ(file.flush().status(), CISTERN_TRUNCATED);
  const std::vector<std::uint32_t> cut = numbers();
  ASSERT_EQ(cut.size(), kWhole * kEach);
  for (std::uint64_t i = 0; i < kWhole; ++i) EXPECT_EQ(cut[i * kEach], i + 100);
  EXPECT_EQ(file.info().dirty_chunks, 2u);
  EXPECT_EQ(file.close().status(), CISTERN_TRUNCATED);
  for (const std::uint64_t bad : {6, 7}) EXPECT_EQ(seen(file.acquire(bad).value())[9], bad) << "still on the device";
  ASSERT_EQ(truncate(path_.c_str(), 8 * kEach * 4), 0);
  ASSERT_TRUE(file.close());
  EXPECT_EQ(numbers()[6 * kEach + 9], 6u);
  EXPECT_EQ(numbers().back(), 7u);
}

TEST_P(MappedTest, WhereNoRoomCanBeWrittenBackTheErrorIsTheAnswer) {
  constexpr std::size_t kEach = 1000;
  write_numbers(4 * kEach);
  cistern::mapped_options of = options(true);
  of.chunk_bytes = kEach * 4;
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), of).value();
  for (const std::uint64_t bad : {2, 3}) set(file.acquire_mut(bad).value(), 0, kEach, 5);
  ASSERT_EQ(truncate(path_.c_str(), 2 * kEach * 4), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(file.acquire(0).status(), CISTERN_TRUNCATED);
  ASSERT_EQ(truncate(path_.c_str(), 3 * kEach * 4), 0);
  EXPECT_EQ(seen(file.acquire(0).value())[7], 7u) << "one of them fits now";
  EXPECT_EQ(seen(file.acquire(1).value())[7], kEach + 7) << "the other does not";
  EXPECT_EQ(file.info().dirty_chunks, 1u);
  ASSERT_EQ(truncate(path_.c_str(), 4 * kEach * 4), 0);
  ASSERT_TRUE(file.close());
  EXPECT_EQ(numbers()[2 * kEach], 5u);
  EXPECT_EQ(numbers().back(), 5u);
}

TEST_P(MappedTest, RoomAndOrderAreChecked) {
  write_numbers(4 * kChunk / 4);
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(true)).value();
  auto one = file.acquire(0).value();
  EXPECT_EQ(file.acquire(0).status(), CISTERN_BUSY);
  EXPECT_EQ(file.acquire(4).status(), CISTERN_BOUNDS);
  auto other = file.acquire(3).value();
  EXPECT_EQ(file.acquire(1).status(), CISTERN_BUSY) << "all the room is acquired";
  EXPECT_EQ(file.close().status(), CISTERN_BUSY);
  ASSERT_TRUE(one.release());
  EXPECT_TRUE(one.release()) << "once is enough";
  EXPECT_TRUE(file.acquire(1));
  ASSERT_TRUE(other.release());
}

// A disk that is full: the chunk stays, and is written when there is room.
void fill_the_disk(const std::string& folder, cistern::place where) {
  const std::string path = folder + "/file";
  cistern::mapped_options of;
  of.chunk_bytes = kChunk;
  of.writable = true;
  of.elements = 8 * kMiB;  // with holes: there are 4 MiB of room
  auto file = mapped_file<std::uint32_t>::open(path.c_str(), where, of).value();
  void* const queue = where.queue.get();
  unsigned failures = 0;
  for (std::uint64_t i = 0; i < file.chunks(); ++i) {
    auto chunk = file.acquire_overwrite(i);
    if (!chunk) {
      ++failures;
      if (chunk.status() != CISTERN_DRIVER || chunk.why().native != ENOSPC) _exit(2);
      if (truncate((folder + "/ballast").c_str(), 0)) _exit(3);
      chunk = file.acquire_overwrite(i);
      if (!chunk) _exit(4);
    }
    const auto value = static_cast<std::uint32_t>(i + 1);
    const cistern_part target = chunk->memory_object()
                                    ? cistern_part{sizeof(cistern_part), CISTERN_OPENCL, chunk->memory_object(), 0}
                                    : cistern_part{sizeof(cistern_part), CISTERN_DEVICE, chunk->data(), 0};
    demand(cistern_enqueue_fill(&target, &value, sizeof value, chunk->size() * 4, 0, queue));
  }
  if (!file.close() || failures != 1) _exit(5);
  const int raw = open(path.c_str(), O_RDONLY);
  for (std::uint64_t i = 0; i < file.chunks(); ++i) {
    std::uint32_t value = 0;
    const auto at = static_cast<off_t>((i + 1) * kChunk - 4);
    if (pread(raw, &value, 4, at) != 4 || value != i + 1) _exit(6);
  }
  _exit(0);
}

TEST_P(MappedTest, DiskFull) {
  char folder[] = "/tmp/cistern-disk-XXXXXX";
  ASSERT_TRUE(mkdtemp(folder));
  const pid_t child = fork();
  if (!child) {
    if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS)) _exit(77);
    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (mount("tmpfs", folder, "tmpfs", 0, "size=36m")) _exit(77);
    const std::string ballast = std::string(folder) + "/ballast";
    const int file = open(ballast.c_str(), O_WRONLY | O_CREAT, 0600);
    if (posix_fallocate(file, 0, 32 << 20)) _exit(7);
    execl("/proc/self/exe", "library_mapped_test", GetParam() == CISTERN_DEVICE ? "--disk" : "--opencl-disk", folder,
          nullptr);
    _exit(8);
  }
  int status = 0;
  waitpid(child, &status, 0);
  rmdir(folder);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "a file system of its own is not permitted here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_P(MappedTest, ALimitOnFilesIsAnAnswer) {
  write_numbers(kChunk / 4);
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(true)).value();
  {
    auto chunk = file.acquire_mut(0).value();
    set(chunk, 0, chunk.size(), 3);
  }
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{kChunk / 2, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  errno = 1234;
  const auto answer = file.flush();
  EXPECT_EQ(errno, 1234);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(answer.status(), CISTERN_DRIVER);
  EXPECT_EQ(answer.why().native, EFBIG);
  EXPECT_STREQ(answer.why().call, "mapped_file::flush");
  ASSERT_TRUE(file.close()) << "nothing was lost";
  EXPECT_EQ(numbers().back(), 3u);
}

TEST_P(MappedTest, ALimitOnFilesIsAnAnswerWhereOneIsMade) {
  unlink(path_.c_str());
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{kChunk / 2, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  cistern::mapped_options of = options(true);
  of.elements = kChunk;
  const auto refused = mapped_file<std::uint32_t>::open(path_.c_str(), place(), of);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(refused.status(), CISTERN_DRIVER);
  EXPECT_EQ(refused.why().native, EFBIG);
  EXPECT_NE(access(path_.c_str(), F_OK), 0) << "what could not be made whole is not left behind";
  of.elements = SIZE_MAX / 2;
  EXPECT_EQ(mapped_file<std::uint32_t>::open(path_.c_str(), place(), of).status(), CISTERN_INVALID);
}

// A wrong queue: what was to be overwritten there is read from the file by the next one.
TEST_P(MappedTest, AnAcquireThatFailsLeavesNothing) {
  if (GetParam() != CISTERN_DEVICE) GTEST_SKIP() << "OpenCL's loader ends a process that gives it a wrong queue";
  write_numbers(3 * kChunk / 4);
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(true)).value();
  EXPECT_TRUE(file.acquire(0));
  auto* const wrong = reinterpret_cast<CUstream_st*>(std::uintptr_t{0x1234560});
  EXPECT_EQ(file.acquire_overwrite(2, wrong).status(), CISTERN_DRIVER);
  EXPECT_EQ(seen(file.acquire(2).value())[0], 2 * kChunk / 4);
  EXPECT_EQ(file.acquire(1, reinterpret_cast<CUstream_st*>(std::uintptr_t{2})).status(), CISTERN_INVALID)
      << "CU_STREAM_PER_THREAD is another stream in each thread";
}

// A program that closes what it does not know of, and opens a file of its own.
TEST_P(MappedTest, AnotherFileInItsPlaceIsLeftAlone) {
  write_numbers(kChunk / 4);
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(true)).value();
  {
    auto chunk = file.acquire_mut(0).value();
    set(chunk, 0, chunk.size(), 0xabababab);
  }
  struct stat wanted, now;
  stat(path_.c_str(), &wanted);
  int descriptor = -1;
  for (int i = 3; i < 256 && descriptor < 0; ++i)
    if (!fstat(i, &now) && now.st_dev == wanted.st_dev && now.st_ino == wanted.st_ino) descriptor = i;
  ASSERT_GE(descriptor, 3);
  const int kept = dup(descriptor);
  char other[] = "/tmp/cistern-other-XXXXXX";
  const int own = mkstemp(other);
  const std::vector<char> mine(kChunk, 'm');
  ASSERT_EQ(write(own, mine.data(), mine.size()), static_cast<ssize_t>(mine.size()));
  ASSERT_EQ(dup2(own, descriptor), descriptor);
  const auto answer = file.close();
  EXPECT_EQ(answer.status(), CISTERN_DRIVER);
  EXPECT_EQ(answer.why().native, EBADF);
  EXPECT_EQ(file.acquire(0).value().size(), kChunk / 4) << "the device has it";
  std::vector<char> read_back(kChunk);
  EXPECT_EQ(pread(own, read_back.data(), kChunk, 0), static_cast<ssize_t>(kChunk));
  EXPECT_EQ(read_back, mine);
  ASSERT_EQ(dup2(kept, descriptor), descriptor);
  EXPECT_TRUE(file.close());
  EXPECT_EQ(numbers()[5], 0xababababu);
  for (const int each : {kept, own}) close(each);
  unlink(other);
}

TEST_P(MappedTest, ReleaseWaitsForNothing) {
  if (GetParam() != CISTERN_OPENCL) GTEST_SKIP() << "by a user event";
  write_numbers(3 * kChunk / 4);
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(false)).value();
  cl_event const gate = clCreateUserEvent(opencl_context(), nullptr);
  auto first = file.acquire(0).value();
  clEnqueueBarrierWithWaitList(queue_, 1, &gate, nullptr);
  ASSERT_TRUE(first.release()) << "work on the chunk has not even begun";
  cl_device_id device = nullptr;
  clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
  cl_command_queue const other = clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr);
  {
    const auto second = file.acquire(1, reinterpret_cast<_cl_command_queue*>(other));
    EXPECT_TRUE(second) << "read while the first one's work waits";
  }
  std::atomic<bool> is_set{false};
  Beside sets([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    is_set = true;
    clSetUserEventStatus(gate, CL_COMPLETE);
  });
  EXPECT_TRUE(file.close());
  EXPECT_TRUE(is_set) << "close waits for work on chunks";
  sets.join();
  clFinish(queue_);
  clReleaseEvent(gate);
  clReleaseCommandQueue(other);
}

// The child's driver is not there, its parent's file is.
TEST_P(MappedTest, AForkedChildClosesItsOwn) {
  write_numbers(2 * kChunk / 4);
  auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), options(true)).value();
  {
    auto chunk = file.acquire_mut(0).value();
    set(chunk, 0, 10, 99);
  }
  const pid_t child = fork();
  if (!child) {
    alarm(20);
    const bool right = file.acquire(1).status() == CISTERN_NO_DRIVER && file.flush().status() == CISTERN_NO_DRIVER;
    _exit(right && file.close() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(file.close());
  EXPECT_EQ(numbers()[9], 99u);
}

TEST_P(MappedTest, NothingIsLostWhereTheDriverFails) {
  if (GetParam() != CISTERN_DEVICE) GTEST_SKIP() << "OpenCL's calls fail in failures_test.cpp";
  constexpr std::size_t kCount = 20'000;
  constexpr unsigned kTries = 3;  // a call that makes more driver calls than `every` never succeeds
  for (int every = 2; every < 40; ++every) {
    write_numbers(kCount);
    std::vector<std::uint32_t> model = numbers();
    cistern::mapped_options of = options(true);
    of.chunk_bytes = 4000;
    auto file = mapped_file<std::uint32_t>::open(path_.c_str(), place(), of).value();
    unsigned failed = 0;
    for (std::uint64_t i = 0; i < file.chunks(); ++i) {
      simcuda_set_value("fail_every", every);
      auto chunk = file.acquire_mut(i);
      simcuda_set_value("fail_every", 0);
      failed += !chunk;
      if (!chunk) continue;
      set(*chunk, 0, 10, static_cast<std::uint32_t>(i));
      std::fill_n(model.begin() + static_cast<long>(i * 1000), 10, static_cast<std::uint32_t>(i));
      simcuda_set_value("fail_every", every);
      for (unsigned tries = 0; !chunk->release(); ++tries, ++failed)
        if (tries == kTries) simcuda_set_value("fail_every", 0);
    }
    for (unsigned tries = 0; !file.close(); ++tries, ++failed)
      if (tries == kTries) simcuda_set_value("fail_every", 0);
    simcuda_set_value("fail_every", 0);
    ASSERT_EQ(numbers(), model) << every;
    if (every < 10) EXPECT_GT(failed, 0u) << every;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MappedTest, testing::Values(CISTERN_OPENCL, CISTERN_DEVICE), name_of_kind);

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && !strcmp(arguments[1], "--disk")) {
    if (!make_cuda_current()) return 9;
    fill_the_disk(arguments[2], cistern::on_device());
  }
  testing::InitGoogleTest(&count, arguments);
  if (count == 3 && !strcmp(arguments[1], "--opencl-disk")) {
    cl_device_id device = nullptr;
    clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
    fill_the_disk(arguments[2],
                  cistern::on_opencl(reinterpret_cast<_cl_context*>(opencl_context()),
                                     reinterpret_cast<_cl_command_queue*>(clCreateCommandQueueWithProperties(
                                         opencl_context(), device, nullptr, nullptr))));
  }
  return RUN_ALL_TESTS();
}
