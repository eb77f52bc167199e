// Whether memory is scarce, from files that lie in a folder of the test's own: few machines let a test make a control
// group with a limit.
#include "shim/process/pressure.hpp"

#include <errno.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "shim/process/system_filter.hpp"
#include "tests/support/child.hpp"

namespace cistern {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kSecond = 1'000'000'000;
constexpr char kMounts[] =
    "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n"
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

class Pressure : public testing::Test {
 protected:
  Pressure() {
    write("/proc/self/mountinfo", kMounts);
    write("/proc/self/cgroup", "0::/user.slice/app");
  }
  ~Pressure() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void group(const std::string& path, const std::string& high, const std::string& max, std::uint64_t used_mib,
             std::uint64_t inactive_mib = 0) const {
    const std::string folder = "/sys/fs/cgroup" + path;
    write(folder + "/memory.high", high);
    write(folder + "/memory.max", max);
    write(folder + "/memory.current", std::to_string(used_mib * kMiB));
    write(folder + "/memory.stat", "anon 1\nfile 99999999999\ninactive_anon 7\ninactive_file " +
                                       std::to_string(inactive_mib * kMiB) + "\nactive_file 99999999999");
  }
  // Each asks for the first time, unless it is said otherwise.
  bool is_near_limit() const { return MemoryPressure(root_.c_str()).is_near_limit(kSecond); }
  bool is_stalled() const { return MemoryPressure(root_.c_str()).is_stalled(); }

  static inline const std::string kLimit = std::to_string(100 * kMiB);
  const std::string root_ = testing::TempDir() + "cistern-pressure-" + std::to_string(getpid());
};

TEST_F(Pressure, IsNineTenthsOfALimit) {
  group("/user.slice/app", "max", "max", 1000);
  EXPECT_FALSE(is_near_limit());
  for (const bool high : {true, false}) {
    group("/user.slice/app", high ? kLimit : "max", high ? "max" : kLimit, 89);
    EXPECT_FALSE(is_near_limit());
    group("/user.slice/app", high ? kLimit : "max", high ? "max" : kLimit, 91);
    EXPECT_TRUE(is_near_limit());
  }
  group("/user.slice/app", std::to_string(200 * kMiB), kLimit, 95);
  EXPECT_TRUE(is_near_limit()) << "the lower one counts";
}

TEST_F(Pressure, IsNotByFilesThatTheKernelDropsFirst) {
  group("/user.slice/app", "max", kLimit, 99, 15);
  EXPECT_FALSE(is_near_limit());
  group("/user.slice/app", "max", kLimit, 99, 5);
  EXPECT_TRUE(is_near_limit());
}

TEST_F(Pressure, MayBeThatOfAGroupAbove) {
  group("/user.slice/app", "max", "max", 10);
  group("/user.slice", kLimit, "max", 95);
  EXPECT_TRUE(is_near_limit());
  group("/user.slice", kLimit, "max", 20);
  EXPECT_FALSE(is_near_limit());
  group("", kLimit, "max", 95);
  EXPECT_TRUE(is_near_limit());
}

// A container has a namespace of its own, or its group alone is mounted, or it sees a path that it has not.
TEST_F(Pressure, OfAContainer) {
  group("", "max", kLimit, 95);
  for (const char* path : {"0::/", "0::/docker/0123456789abcdef", "0::/../../other"}) {
    write("/proc/self/cgroup", path);
    EXPECT_TRUE(is_near_limit()) << path;
  }
  group("", "max", "max", 95);
  write("/proc/self/mountinfo", "30 23 0:26 /docker/01 /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  write("/proc/self/cgroup", "0::/docker/01/inner");
  EXPECT_FALSE(is_near_limit());
  group("/inner", kLimit, "max", 95);
  EXPECT_TRUE(is_near_limit());
}

// Long lines of overlay mounts stand before it, one of them longer than the buffer.
TEST_F(Pressure, WhereManyFileSystemsAreMounted) {
  std::string mounts;
  for (const std::size_t length : {100, 3000, 4095, 9000, 500})
    mounts += "40 1 0:40 / /merged rw - overlay overlay rw,lowerdir=" + std::string(length, 'x') + "\n";
  write("/proc/self/mountinfo", mounts + "50 1 0:26 / /elsewhere rw - cgroup2 none rw\n" + kMounts);
  write("/elsewhere/user.slice/app/memory.high", kLimit);
  write("/elsewhere/user.slice/app/memory.current", kLimit);
  EXPECT_TRUE(is_near_limit());
}

TEST_F(Pressure, IsNoneWhereTheSystemDoesNotSay) {
  EXPECT_FALSE(is_near_limit()) << "no file of the group";
  group("/user.slice/app", kLimit, kLimit, 99);
  std::filesystem::remove(root_ + "/sys/fs/cgroup/user.slice/app/memory.current");
  EXPECT_FALSE(is_near_limit());
  group("/user.slice/app", kLimit, kLimit, 99);
  for (const char* text : {"", "x", "0::", "1:memory:/user.slice/app\n2:cpu:/"}) {
    write("/proc/self/cgroup", text);
    EXPECT_FALSE(is_near_limit()) << text;
  }
  write("/proc/self/cgroup", "9:name=systemd:/\n0::/user.slice/app");
  EXPECT_TRUE(is_near_limit()) << "both versions";
  for (const char* text : {"", " - cgroup2 ", "30 23 0:26 - cgroup2 ", "22 1 0:21 / /proc rw - proc proc rw"}) {
    write("/proc/self/mountinfo", text);
    EXPECT_FALSE(is_near_limit()) << text;
  }
  std::filesystem::remove_all(root_ + "/proc");
  errno = 77;
  EXPECT_FALSE(is_near_limit());
  EXPECT_FALSE(is_stalled());
  EXPECT_EQ(errno, 77);
}

TEST_F(Pressure, IsLookedForAnewAtEachQuestion) {
  MemoryPressure pressure(root_.c_str());
  group("/user.slice/app", kLimit, "max", 50);
  EXPECT_FALSE(pressure.is_near_limit(1 * kSecond));
  group("/user.slice/app", kLimit, "max", 95);
  EXPECT_TRUE(pressure.is_near_limit(2 * kSecond));
  group("/other", "max", "max", 1);
  write("/proc/self/cgroup", "0::/other");
  EXPECT_FALSE(pressure.is_near_limit(3 * kSecond)) << "the process moved";
  group("/other", kLimit, "max", 95);
  EXPECT_FALSE(pressure.is_near_limit(62 * kSecond)) << "there was no limit less than a minute ago";
  EXPECT_TRUE(pressure.is_near_limit(64 * kSecond));
}

TEST_F(Pressure, IsThatTasksWait) {
  const auto stalls = [](const char* percent) {
    return std::string("some avg10=") + percent + " avg60=55.00 avg300=0.00 total=9\nfull avg10=99.00";
  };
  EXPECT_FALSE(is_stalled());
  write("/proc/pressure/memory", stalls("12.50"));
  EXPECT_TRUE(is_stalled());
  write("/sys/fs/cgroup/user.slice/app/memory.pressure", stalls("9.99"));
  EXPECT_FALSE(is_stalled()) << "the group's own";
  write("/sys/fs/cgroup/user.slice/app/memory.pressure", stalls("10.00"));
  EXPECT_TRUE(is_stalled());
  write("/sys/fs/cgroup/user.slice/app/memory.pressure", "");
  write("/proc/pressure/memory", "some avg60=50.00");
  EXPECT_FALSE(is_stalled());
}

TEST_F(Pressure, IsNotAskedForUnderAFilter) {
  test::in_child([this] {
    group("/user.slice/app", kLimit, "max", 95);
    write("/proc/pressure/memory", "some avg10=50.00");
    system_filter::set = true;
    EXPECT_FALSE(is_near_limit());
    EXPECT_FALSE(is_stalled());
  });
}

TEST_F(Pressure, IsAskedForByManyThreadsAndInAChildOfTheirs) {
  static MemoryPressure pressure(root_.c_str());
  group("/user.slice/app", kLimit, "max", 95);
  std::atomic<bool> ends{false};
  std::thread threads[2];
  for (std::thread& thread : threads)
    thread = std::thread([&] {
      while (!ends) pressure.is_near_limit(kSecond);
    });
  for (int i = 0; i < 20; ++i) test::in_child([] { EXPECT_TRUE(pressure.is_near_limit(kSecond)); });
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(pressure.is_near_limit(kSecond));
}

}  // namespace
}  // namespace cistern
