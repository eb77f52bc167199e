// Checks that a mapped file read by the file gives what the mapping shows, or is left to the mapping.
#include "shim/staging/mapped_source.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "pool/base/page_size.hpp"

namespace cistern {
namespace {

const std::size_t kPage = page_bytes();
constexpr std::size_t kBytes = std::size_t{4} << 20;

class MappedSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GE(file_ = mkstemp(name_), 0);
    struct statfs is {};
    ASSERT_EQ(fstatfs(file_, &is), 0);
    const auto type = static_cast<std::uint32_t>(is.f_type);
    if (type != 0x9123683E && type != 0xEF53 && type != 0xF2F52010 && type != 0x58465342) {
      unlink(name_);
      GTEST_SKIP() << "the folder of the test is not on btrfs, ext, F2FS or XFS";
    }
    std::vector<char> content(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) content[i] = static_cast<char>(i * 7 + i / kPage);
    ASSERT_EQ(write(file_, content.data(), kBytes), static_cast<ssize_t>(kBytes));
    map(MAP_PRIVATE);
  }
  void TearDown() override {
    if (memory_) munmap(memory_, kBytes);
    unlink(name_);
    close(file_);
  }
  void map(int flags, std::size_t offset = 0, int rights = PROT_READ | PROT_WRITE) {
    if (memory_) munmap(memory_, kBytes);
    memory_ = static_cast<char*>(mmap(nullptr, kBytes - offset, rights, flags, file_, static_cast<off_t>(offset)));
    ASSERT_NE(memory_, MAP_FAILED);
  }
  // False: it is left to the mapping.
  bool reads_as_mapped(const MappedSource& source, std::size_t at, std::size_t bytes) {
    std::vector<char> got(bytes);
    if (!source.read(got.data(), memory_ + at, bytes)) return false;
    EXPECT_EQ(memcmp(got.data(), memory_ + at, bytes), 0);
    return true;
  }
  bool opens(std::size_t at = 0, std::size_t bytes = kBytes) {
    MappedSource source;
    return source.open(memory_ + at, bytes);
  }

  char name_[32] = "mapped-source-XXXXXX";
  int file_ = -1;
  char* memory_ = nullptr;
};

TEST_F(MappedSourceTest, GivesWhatTheMappingShows) {
  for (const int flags : {MAP_PRIVATE, MAP_SHARED}) {
    map(flags);
    MappedSource source;
    ASSERT_TRUE(source.open(memory_, kBytes));
    EXPECT_TRUE(reads_as_mapped(source, 0, kBytes));
    EXPECT_TRUE(reads_as_mapped(source, 5, 3));
    EXPECT_TRUE(reads_as_mapped(source, kBytes - 1, 1));
  }
}

TEST_F(MappedSourceTest, FromWhereTheMappingBegins) {
  map(MAP_PRIVATE, 3 * kPage);
  MappedSource source;
  ASSERT_TRUE(source.open(memory_ + kPage, 2 << 20));
  EXPECT_TRUE(reads_as_mapped(source, kPage + 17, 1 << 20));
}

TEST_F(MappedSourceTest, LeavesPagesThatTheProgramWrote) {
  memory_[9 * kPage + 1] = 'x';
  MappedSource source;
  ASSERT_TRUE(source.open(memory_, kBytes));
  EXPECT_FALSE(reads_as_mapped(source, 0, kBytes));
  EXPECT_FALSE(reads_as_mapped(source, 9 * kPage + 5, 1));
  EXPECT_TRUE(reads_as_mapped(source, 0, 9 * kPage));
  EXPECT_TRUE(reads_as_mapped(source, 10 * kPage, kBytes - 10 * kPage));
  // Since it was opened, far from its beginning.
  memory_[700 * kPage] = 'x';
  EXPECT_FALSE(reads_as_mapped(source, 10 * kPage, kBytes - 10 * kPage));
}

TEST_F(MappedSourceTest, SharedPagesThatTheProgramWroteAreTheFiles) {
  map(MAP_SHARED);
  MappedSource source;
  ASSERT_TRUE(source.open(memory_, kBytes));
  memory_[9 * kPage + 1] = 'x';
  EXPECT_TRUE(reads_as_mapped(source, 0, kBytes));
}

TEST_F(MappedSourceTest, LeavesWhatTheFileNoLongerHas) {
  MappedSource source;
  ASSERT_TRUE(source.open(memory_, kBytes));
  ASSERT_EQ(ftruncate(file_, 2 << 20), 0);
  std::vector<char> got(kBytes);
  EXPECT_FALSE(source.read(got.data(), memory_, kBytes));
  EXPECT_TRUE(reads_as_mapped(source, 0, 2 << 20));
}

TEST_F(MappedSourceTest, OpensNothingThatIsNotThatFile) {
  EXPECT_TRUE(opens());
  EXPECT_FALSE(opens(0, MappedSource::kBytesMin - 1)) << "too few";
  EXPECT_FALSE(opens(kPage, kBytes)) << "behind the end of the mapping";
  ASSERT_EQ(mprotect(memory_ + kPage * 512, kPage, PROT_NONE), 0);
  EXPECT_FALSE(opens()) << "several mappings";
  map(MAP_PRIVATE, 0, PROT_NONE);
  EXPECT_FALSE(opens()) << "not readable";
  map(MAP_PRIVATE);
  ASSERT_EQ(unlink(name_), 0);
  EXPECT_FALSE(opens()) << "without a name";
  const int other = open(name_, O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(ftruncate(other, kBytes), 0);
  EXPECT_FALSE(opens()) << "its name is another file's";
  close(other);
  ASSERT_EQ(unlink(name_), 0);
  ASSERT_EQ(mkfifo(name_, 0600), 0);
  EXPECT_FALSE(opens()) << "its name is that of a pipe";
  std::vector<char> anonymous(kBytes);
  EXPECT_FALSE(MappedSource().open(anonymous.data(), kBytes));
}

TEST_F(MappedSourceTest, WithoutNumbersForFilesNothingIsOpened) {
  rlimit before{}, few{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  few.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_FALSE(opens());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

std::set<std::string> open_numbers() {
  std::set<std::string> found;
  for (int number = 0; number < 2000; ++number)
    if (fcntl(number, F_GETFD) >= 0) found.insert(std::to_string(number));
  return found;
}

TEST_F(MappedSourceTest, AForkedChildHasNoneOfItsFiles) {
  const std::set<std::string> before = open_numbers();
  MappedSource source;
  ASSERT_TRUE(source.open(memory_, kBytes));
  EXPECT_GT(open_numbers().size(), before.size());
  const pid_t child = fork();
  if (child == 0) {
    mapped_sources_after_fork_in_child();
    const bool none = open_numbers() == before && !reads_as_mapped(source, 0, kBytes);
    _exit(none ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(reads_as_mapped(source, 0, kBytes));
}

TEST_F(MappedSourceTest, TheTextOfAllMappingsSaysTheSame) {
  char path[4096];
  const auto asked = mapping_around(reinterpret_cast<std::uintptr_t>(memory_), path, sizeof path, false);
  if (!asked) GTEST_SKIP() << "this system cannot be asked for one mapping";
  MappingReader reader(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  while (const auto mapping = reader.next()) {
    if (mapping->first != asked->first) continue;
    EXPECT_EQ(mapping->end, asked->end);
    EXPECT_EQ(mapping->offset, asked->offset);
    EXPECT_EQ(mapping->inode, asked->inode);
    EXPECT_EQ(mapping->device, asked->device);
    EXPECT_EQ(mapping->path, asked->path);
    return;
  }
  FAIL() << "it is not there";
}

}  // namespace
}  // namespace cistern
