// Checks kinds of host memory, from texts of the system and of mappings that the tests make.
#include "shim/staging/source_kind.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shim/process/system_filter.hpp"

namespace cistern {
namespace {

// --- Texts

MappedFile mapped(const std::string& line) { return mapped_file(*parse_mapping(line)); }

SourceKind kind_of_line(const std::string& line, const std::string& mount) {
  const MappedFile file = mapped(line);
  return kind_of(file, file_system_in(mount, file.device).value_or(FileSystem::unknown));
}

std::string mount_of(const std::string& type) { return "36 35 98:1 / /mnt rw,noatime master:1 - " + type + " x rw"; }

TEST(SourceKind, AFileIsWhatItsFileSystemIs) {
  const std::string line = "1000-2000 r--p 00000000 62:01 77 /mnt/weights";
  for (const char* local : {"ext4", "xfs", "btrfs", "overlay", "fuseblk", "nfsd", "zfs"})
    EXPECT_EQ(kind_of_line(line, mount_of(local)), SourceKind::file) << local;
  for (const char* network :
       {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "fuse", "fuse.sshfs", "9p", "gpfs", "beegfs"})
    EXPECT_EQ(kind_of_line(line, mount_of(network)), SourceKind::network_file) << network;
  EXPECT_EQ(kind_of_line(line, mount_of("tmpfs")), SourceKind::shared_memory);
}

TEST(SourceKind, AFileOfNoMountThatIsSeenIsLocal) {
  EXPECT_EQ(kind_of_line("1000-2000 r--p 00000000 62:02 77 /mnt/weights", mount_of("nfs")), SourceKind::file);
  EXPECT_EQ(kind_of_line("1000-2000 r--p 00000000 62:01 77 /mnt/weights", "36 35 98:1 / /mnt rw"), SourceKind::file);
}

TEST(SourceKind, HugePagesAreWhatTheirMappingIs) {
  const std::string file = "1000-2000 rw-? 00000000 62:01 77 /mnt/huge", nameless =
                                                                             "1000-2000 rw-? 0 00:0f 7 "
                                                                             "/anon_hugepage (deleted)";
  const auto with = [](std::string line, char sharing) { return line.replace(line.find('?'), 1, 1, sharing); };
  for (const std::string& line : {file, nameless}) {
    EXPECT_EQ(kind_of_line(with(line, 's'), mount_of("hugetlbfs")), SourceKind::shared_memory) << line;
    EXPECT_EQ(kind_of_line(with(line, 'p'), mount_of("hugetlbfs")), SourceKind::anonymous) << line;
  }
}

TEST(SourceKind, FilesOfTheKernelAreSharedMemory) {
  for (const char* name : {"/memfd:a name (deleted)", "/SYSV00000000 (deleted)", "/dev/zero (deleted)"})
    EXPECT_EQ(kind_of_line(std::string("1000-2000 rw-s 00000000 00:01 5 ") + name, ""), SourceKind::shared_memory)
        << name;
  EXPECT_EQ(kind_of_line("1000-2000 rw-s 00000000 00:01 0 /SYSV00000000 (deleted)", ""), SourceKind::shared_memory);
  for (const char* name : {"/memfd:weights", "/mnt/memfd:x (deleted)", "/weights (deleted)"})
    EXPECT_EQ(kind_of_line(std::string("1000-2000 rw-s 00000000 62:01 5 ") + name, ""), SourceKind::file) << name;
  for (const char* name : {"", "[heap]", "[anon:pool]"})
    EXPECT_EQ(kind_of_line(std::string("1000-2000 rw-p 00000000 00:00 0 ") + name, ""), SourceKind::anonymous) << name;
}

TEST(SourceKind, AMountIsOfItsDeviceOnly) {
  const std::string mount = "36 35 98:12 / /a\\040-\\040b rw shared:3 master:1 - nfs4 server:/x rw";
  EXPECT_EQ(file_system_in(mount, device_number(98, 12)), FileSystem::network);
  for (const auto& [major, minor] : {std::pair{98, 1}, {9, 12}, {98, 120}, {12, 98}})
    EXPECT_FALSE(file_system_in(mount, device_number(major, minor))) << major << ':' << minor;
  for (const char* text : {"", "36", "36 35", "36 35 98", "36 35 98:", "36 35 :12", "36 35 98:12x / /"})
    EXPECT_FALSE(file_system_in(text, device_number(98, 12))) << text;
}

// --- Mappings

constexpr std::size_t kBytes = std::size_t{1} << 20;

class Map {
 public:
  Map(int file, int flags, int rights = PROT_READ | PROT_WRITE)
      : at_(static_cast<char*>(mmap(nullptr, kBytes, rights, flags, file, 0))) {
    if (at_ == MAP_FAILED) std::perror("mmap"), std::abort();
  }
  ~Map() { munmap(at_, kBytes); }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;
  char* at() const { return at_; }

 private:
  char* const at_;
};

// Without a name, in `folder`.
int file_in(const char* folder) {
  const std::string path = std::string(folder) + "/cistern-source-XXXXXX";
  std::string name = path;
  const int file = mkstemp(name.data());
  if (file < 0) return -1;
  unlink(name.c_str());
  const std::string bytes(kBytes, 'w');
  if (write(file, bytes.data(), kBytes) != static_cast<ssize_t>(kBytes)) std::abort();
  return file;
}

SourceKind expected_in(int file) {
  struct statfs found {};
  fstatfs(file, &found);
  return found.f_type == TMPFS_MAGIC ? SourceKind::shared_memory : SourceKind::file;
}

SourceKind source_of(const void* first, std::size_t bytes) { return SourceKinds().of(first, bytes, 0).kind; }

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

// Both ways of looking agree, where the system has both.
void expect_kind(const char* at, SourceKind expected, const char* what) {
  EXPECT_EQ(source_of(at, kBytes), expected) << what;
  const auto asked = query_mapping(number(at)), read = read_mapping(number(at));
  ASSERT_TRUE(read) << what;
  EXPECT_LE(read->first, number(at)) << what;
  EXPECT_GT(read->end, number(at)) << what;
  if (!asked) return;
  EXPECT_EQ(asked->first, read->first) << what;
  EXPECT_EQ(asked->end, read->end) << what;
  EXPECT_EQ(asked->device, read->device) << what;
  EXPECT_EQ(asked->inode, read->inode) << what;
  EXPECT_EQ(asked->is_shared, read->is_shared) << what;
  EXPECT_EQ(asked->is_of_kernel, read->is_of_kernel) << what;
}

TEST(SourceKind, OfRealMappings) {
  const Map anonymous(-1, MAP_PRIVATE | MAP_ANONYMOUS), shared(-1, MAP_SHARED | MAP_ANONYMOUS);
  expect_kind(anonymous.at(), SourceKind::anonymous, "never touched");
  memset(anonymous.at(), 1, kBytes);
  expect_kind(anonymous.at(), SourceKind::anonymous, "touched");
  expect_kind(shared.at(), SourceKind::shared_memory, "shared");
  const int memory = memfd_create("source", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(memory, kBytes), 0);
  expect_kind(Map(memory, MAP_SHARED).at(), SourceKind::shared_memory, "memfd");
  expect_kind(Map(memory, MAP_PRIVATE).at(), SourceKind::shared_memory, "memfd, private");
  close(memory);
  const int segment = shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
  if (segment >= 0) {
    const void* const at = shmat(segment, nullptr, 0);
    shmctl(segment, IPC_RMID, nullptr);
    expect_kind(static_cast<const char*>(at), SourceKind::shared_memory, "System V");
    shmdt(at);
  }
  for (const char* folder : {"/tmp", "/dev/shm", "."}) {
    const int file = file_in(folder);
    if (file < 0) continue;
    for (const int flags : {MAP_PRIVATE, MAP_SHARED}) {
      const Map map(file, flags);
      expect_kind(map.at(), expected_in(file), folder);
      EXPECT_EQ(*map.at(), 'w');
      expect_kind(map.at(), expected_in(file), folder);
      expect_kind(map.at() + kBytes / 2 + 5, expected_in(file), folder);
    }
    close(file);
  }
}

TEST(SourceKind, APageThatWasWrittenOfAPrivateFileIsAnonymous) {
  const int file = file_in("/tmp");
  const Map map(file, MAP_PRIVATE);
  map.at()[0] = 'x';
  EXPECT_EQ(source_of(map.at(), kBytes), SourceKind::anonymous);
  EXPECT_EQ(source_of(map.at() + kBytes / 2, kBytes / 2), expected_in(file));
  close(file);
}

TEST(SourceKind, ACopyOfSeveralMappingsIsWhatItsFirstPageIs) {
  const int file = file_in("/tmp");
  const Map map(file, MAP_SHARED);
  char* const middle = map.at() + kBytes / 2;
  ASSERT_EQ(mmap(middle, kBytes / 2, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), middle);
  EXPECT_EQ(source_of(map.at(), kBytes), expected_in(file));
  EXPECT_EQ(source_of(middle, kBytes / 2), SourceKind::anonymous);
  close(file);
}

TEST(SourceKind, OfNoMappingIsAnonymous) {
  char* const at = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  munmap(at, kBytes);
  EXPECT_EQ(source_of(at, kBytes), SourceKind::anonymous);
  EXPECT_FALSE(read_mapping(number(at)));
  EXPECT_FALSE(query_mapping(number(at)));
  EXPECT_EQ(source_of(nullptr, kBytes), SourceKind::anonymous);
}

TEST(SourceKind, UnderAFilterNothingIsAsked) {
  const int file = file_in("/tmp");
  const Map map(file, MAP_SHARED);
  system_filter::set = true;
  EXPECT_EQ(source_of(map.at(), kBytes), SourceKind::anonymous);
  system_filter::set = false;
  EXPECT_EQ(source_of(map.at(), kBytes), expected_in(file));
  close(file);
}

// --- What is remembered

TEST(SourceKinds, AnswersStayForAWhile) {
  const int file = file_in(".");
  const Map map(file, MAP_SHARED);
  SourceKinds kinds;
  const std::uint64_t now = 5 * SourceKinds::kValidNs;
  const SourceKind expected = expected_in(file);
  EXPECT_EQ(kinds.of(map.at(), kBytes / 2, now).kind, expected);
  ASSERT_EQ(mmap(map.at(), kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), map.at());
  EXPECT_EQ(kinds.of(map.at() + kBytes / 2, 5, now + SourceKinds::kValidNs - 1).kind, expected);
  EXPECT_EQ(kinds.of(map.at() + kBytes / 2, 5, now + SourceKinds::kValidNs).kind, SourceKind::anonymous);
  EXPECT_EQ(kinds.of(map.at() + kBytes / 2, 5, now).kind, expected) << "a thread whose clock was read earlier";
  close(file);
}

TEST(SourceKinds, MoreMappingsThanAreRememberedAreStillRight) {
  const int file = file_in(".");
  SourceKinds kinds;
  std::vector<std::unique_ptr<Map>> maps;
  for (int i = 0; i < 50; ++i)
    maps.push_back(i % 2 ? std::make_unique<Map>(file, MAP_SHARED)
                         : std::make_unique<Map>(-1, MAP_PRIVATE | MAP_ANONYMOUS));
  for (std::uint64_t round = 0; round < 3; ++round)
    for (std::size_t i = 0; i < maps.size(); ++i)
      EXPECT_EQ(kinds.of(maps[i]->at(), kBytes, SourceKinds::kValidNs * (round + 1)).kind,
                i % 2 ? expected_in(file) : SourceKind::anonymous);
  close(file);
}

}  // namespace
}  // namespace cistern
