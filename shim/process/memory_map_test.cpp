// Lines of /proc/PID/maps, and all of this process's.
#include "shim/process/memory_map.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace cistern {
namespace {

TEST(MemoryMap, ReadsALine) {
  const auto file = parse_mapping("7f0e40001000-7f0e40002000 r-xp 00028000 fe:01 1234                 /usr/lib/a b.so");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->first, 0x7f0e40001000u);
  EXPECT_EQ(file->end, 0x7f0e40002000u);
  EXPECT_TRUE(file->is_readable && file->is_executable && !file->is_writable && !file->is_shared);
  EXPECT_EQ(file->path, "/usr/lib/a b.so");
  EXPECT_EQ(file->device, device_number(0xfe, 1));
  EXPECT_EQ(file->inode, 1234u);
  const auto anonymous = parse_mapping("1000-2000 rw-s 00000000 00:00 0 ");
  ASSERT_TRUE(anonymous);
  EXPECT_TRUE(anonymous->is_writable && anonymous->is_shared && anonymous->path.empty() && !anonymous->inode);
}

TEST(MemoryMap, IsNotFooledByOtherLines) {
  for (const char* line : {"", "x", "1000", "1000-", "1000-2000", "2000-1000 rw-p 0 0 0", "1000-2000 rw 0 0 0",
                           "g000-2000 rw-p 0 0 0", "1000-20000000000000000 rw-p 0 0 0"})
    EXPECT_FALSE(parse_mapping(line)) << line;
}

TEST(MemoryMap, FindsWhatIsMappedHere) {
  const std::size_t kBytes = 12345 / 4096 * 4096;
  void* const own = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  MappingReader reader(file);
  std::uintptr_t before = 0;
  int code = 0, holds_own = 0, stacks = 0;
  while (const auto mapping = reader.next()) {
    EXPECT_GE(mapping->first, before);
    before = mapping->end;
    const auto holds = [&](const void* at) {
      return reinterpret_cast<std::uintptr_t>(at) - mapping->first < mapping->end - mapping->first;
    };
    code += holds(reinterpret_cast<const void*>(parse_mapping)) && mapping->is_executable;
    holds_own += holds(own) && mapping->is_readable && !mapping->is_writable;
    stacks += holds(&before) && mapping->path == "[stack]";
  }
  close(file);
  munmap(own, kBytes);
  EXPECT_EQ(code, 1);
  EXPECT_EQ(holds_own, 1);
  EXPECT_EQ(stacks, 1);
}

// However the reads cut them.
TEST(MemoryMap, ReadsLinesThatAReadCuts) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::string text;
  for (unsigned i = 1; i <= 300; ++i) {
    char line[200];
    snprintf(line, sizeof line, "%x000-%x000 rw-p 00000000 00:00 0 /%s%u\n", i, i + 1, std::string(i % 90, 'x').c_str(),
             i);
    text += line;
  }
  ASSERT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  close(ends[1]);
  MappingReader reader(ends[0]);
  for (unsigned i = 1; i <= 300; ++i) {
    const auto mapping = reader.next();
    ASSERT_TRUE(mapping) << i;
    EXPECT_EQ(mapping->first, i << 12);
    EXPECT_TRUE(mapping->path.ends_with(std::to_string(i)));
  }
  EXPECT_FALSE(reader.next());
  close(ends[0]);
}

}  // namespace
}  // namespace cistern
