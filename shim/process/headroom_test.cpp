// The memory that the process can still take: changes of its own limits count immediately, and under a filter of system
// calls the last answer holds.
#include "shim/process/headroom.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "shim/process/system_filter.hpp"
#include "tests/support/child.hpp"

namespace cistern {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kSecond = 1'000'000'000;

void limit_to(int resource, std::uint64_t bytes) {
  const rlimit limit{bytes, RLIM_INFINITY};
  ASSERT_EQ(setrlimit(static_cast<__rlimit_resource_t>(resource), &limit), 0);
  Headroom::note_limits_changed();
}

// A number of /proc/self/statm, which are pages.
std::uint64_t statm_bytes(int which) {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  for (int i = 0; i <= which; ++i)
    if (!(file >> pages)) ADD_FAILURE();
  return pages * static_cast<std::uint64_t>(getpagesize());
}
std::uint64_t address_space_bytes() { return statm_bytes(0); }
std::uint64_t data_bytes() { return statm_bytes(5); }  // a sanitizer uses a lot

void* take(std::uint64_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return memory;
}

// The files of control groups, in a folder of the test's own: a machine has groups of one version, if it lets a test
// make any.
class Groups : public testing::Test {
 protected:
  ~Groups() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  // Of version 2.
  void group(const std::string& path, const std::string& most, std::uint64_t used, std::uint64_t cached) {
    const std::string folder = "/sys/fs/cgroup" + path;
    write(folder + "/memory.max", most);
    write(folder + "/memory.current", std::to_string(used));
    write(folder + "/memory.stat", "anon 1\ninactive_file " + std::to_string(cached / 4 * 3) + "\nactive_file " +
                                       std::to_string(cached / 4) + "\nworkingset_refault_file 99999999999");
  }
  std::uint64_t left() const { return left_in_groups(root_.c_str()); }

  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
  static inline const std::string kLimit = std::to_string(100 * kMiB);

 private:
  const std::string root_ = testing::TempDir() + "cistern-groups-" + std::to_string(getpid());
};

TEST_F(Groups, WithoutAnyThereIsNoLimit) {
  EXPECT_EQ(left(), kNoLimit);
  write("/proc/self/cgroup", "0::/");
  EXPECT_EQ(left(), kNoLimit);
}

TEST_F(Groups, OfVersionTwoHaveTheLimitLessWhatIsInUseButForFilesRead) {
  write("/proc/self/cgroup", "0::/user.slice/app");
  group("/user.slice/app", kLimit, 60 * kMiB, 20 * kMiB);
  EXPECT_EQ(left(), 60 * kMiB);
}

TEST_F(Groups, OfVersionTwoHaveTheLimitsOfThoseAboveThem) {
  write("/proc/self/cgroup", "0::/user.slice/job/step");
  group("/user.slice/job/step", "max", 30 * kMiB, 0);
  group("/user.slice/job", kLimit, 70 * kMiB, 0);
  group("/user.slice", std::to_string(200 * kMiB), 80 * kMiB, 0);
  EXPECT_EQ(left(), 30 * kMiB);
  group("/user.slice", std::to_string(90 * kMiB), 80 * kMiB, 0);
  EXPECT_EQ(left(), 10 * kMiB);
}

// In a namespace of its own a container sees its group as the topmost; without one by a path that it has not.
TEST_F(Groups, OfAContainerAreTheTopmost) {
  group("", kLimit, 90 * kMiB, 0);
  write("/proc/self/cgroup", "0::/");
  EXPECT_EQ(left(), 10 * kMiB);
  write("/proc/self/cgroup", "0::/docker/0123456789abcdef");
  EXPECT_EQ(left(), 10 * kMiB);
}

TEST_F(Groups, OverTheirLimitHaveNothingLeft) {
  write("/proc/self/cgroup", "0::/app");
  group("/app", kLimit, 101 * kMiB, 0);
  EXPECT_EQ(left(), 0u);
}

// Version 1, behind those of all the other controllers, with paths as long as Kubernetes makes them.
TEST_F(Groups, OfVersionOneAreFoundInALongList) {
  const std::string path = "/kubepods/burstable/pod" + std::string(36, 'a') + "/" + std::string(64, 'b');
  std::string list;
  for (int number = 13; number > 1; --number)
    list += std::to_string(number) + ":controller" + std::to_string(number) + ":" + path + "\n";
  write("/proc/self/cgroup", list + "1:memory:" + path + "\n0::" + path);
  write("/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes", kLimit);
  write("/sys/fs/cgroup/memory" + path + "/memory.usage_in_bytes", std::to_string(40 * kMiB));
  EXPECT_EQ(left(), 60 * kMiB);
}

TEST(Headroom, IsWhatTheMachineHasWithoutLimits) {
  Headroom headroom;
  const std::uint64_t left = headroom.bytes({0, kSecond});
  EXPECT_GT(left, 16 * kMiB);
  EXPECT_LE(left, available_bytes() + 512 * kMiB) << "others take and give meanwhile";
}

TEST(Headroom, FollowsTheAddressSpaceAtOnce) {
  test::in_child([] {
    Headroom headroom;
    headroom.bytes({0, kSecond});
    limit_to(RLIMIT_AS, address_space_bytes() + 256 * kMiB);
    EXPECT_NEAR(static_cast<double>(headroom.bytes({0, kSecond})), 256 * kMiB, 8 * kMiB);
    void* const taken = take(100 * kMiB);
    EXPECT_NEAR(static_cast<double>(headroom.bytes({0, kSecond})), 156 * kMiB, 8 * kMiB);
    munmap(taken, 100 * kMiB);
    EXPECT_NEAR(static_cast<double>(headroom.bytes({0, kSecond})), 256 * kMiB, 8 * kMiB);
  });
}

TEST(Headroom, MayBeAsOldAsAMomentOfTheClock) {
  test::in_child([] {
    Headroom headroom;
    limit_to(RLIMIT_AS, address_space_bytes() + 256 * kMiB);
    const std::uint64_t before = headroom.bytes({0, kSecond});
    take(100 * kMiB);
    EXPECT_EQ(headroom.bytes({.now_ns = kSecond, .at_once = false}), before) << "looked";
    EXPECT_LT(headroom.bytes({.now_ns = kSecond + 1, .at_once = false}), before - 90 * kMiB);
  });
}

TEST(Headroom, FollowsALimitOfDataAtOnce) {
  test::in_child([] {
    Headroom headroom;
    headroom.bytes({0, kSecond});
    limit_to(RLIMIT_DATA, data_bytes() + 512 * kMiB);
    const std::uint64_t before = headroom.bytes({0, kSecond});
    EXPECT_LE(before, 512 * kMiB);
    take(100 * kMiB);
    EXPECT_NEAR(static_cast<double>(before - headroom.bytes({0, kSecond})), 100 * kMiB, 8 * kMiB);
  });
}

TEST(Headroom, IsALimitSetByOthersAfterAWhile) {
  test::in_child([] {
    Headroom headroom;
    headroom.bytes({0, kSecond});
    const rlimit limit{address_space_bytes() + 256 * kMiB, RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    EXPECT_LE(headroom.bytes({0, 2 * kSecond}), 257 * kMiB);
  });
}

TEST(Headroom, UnderAFilterIsWhatWasKnownLessWhatTheAskerTook) {
  test::in_child([] {
    Headroom headroom;
    limit_to(RLIMIT_AS, address_space_bytes() + 256 * kMiB);
    const std::uint64_t known = headroom.bytes({10 * kMiB, kSecond});
    system_filter::set = true;
    take(100 * kMiB);
    EXPECT_EQ(headroom.bytes({10 * kMiB, 9 * kSecond}), known) << "looked";
    EXPECT_EQ(headroom.bytes({110 * kMiB, 9 * kSecond}), known - 100 * kMiB);
    EXPECT_EQ(headroom.bytes({900 * kMiB, 9 * kSecond}), 0u);
    EXPECT_EQ(headroom.bytes({0, 9 * kSecond}), known);
  });
}

TEST(Headroom, IsALittleWhereAFilterWasThereFirst) {
  test::in_child([] {
    system_filter::set = true;
    Headroom headroom;
    EXPECT_EQ(headroom.bytes({0, kSecond}), Headroom::kUnknown);
    EXPECT_EQ(headroom.bytes({900 * kMiB, 9 * kSecond}), Headroom::kUnknown);
  });
}

}  // namespace
}  // namespace cistern
