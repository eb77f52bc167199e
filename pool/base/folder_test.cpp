// Names of a folder that the test made, as the kernel tells them.
#include "pool/base/folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace cistern {
namespace {

TEST(Folder, EachNameIsVisitedOnceUntilOneIsEnough) {
  char path[] = "/tmp/cistern-folder-XXXXXX";
  ASSERT_NE(mkdtemp(path), nullptr);
  std::set<std::string> made = {".hidden", "..more"};
  for (int i = 0; i < 500; ++i)
    made.insert("a rather long name, number " + std::to_string(i));  // more than one reading
  for (const std::string& name : made) std::ofstream(std::string(path) + "/" + name);
  const int folder = open(path, O_RDONLY | O_DIRECTORY);
  std::multiset<std::string> seen;
  visit_names(folder, [&](const char* name) {
    seen.insert(name);
    return false;
  });
  EXPECT_EQ(seen, std::multiset<std::string>(made.begin(), made.end()));
  lseek(folder, 0, SEEK_SET);
  int visits = 0;
  visit_names(folder, [&](const char*) { return ++visits == 3; });
  EXPECT_EQ(visits, 3);
  close(folder);
  std::filesystem::remove_all(path);
}

TEST(Folder, OfWhatIsNoneNothingIsVisited) {
  const int file = open("/proc/self/exe", O_RDONLY);
  for (const int descriptor : {-1, file})
    visit_names(descriptor, [&](const char* name) {
      ADD_FAILURE() << name;
      return true;
    });
  close(file);
}

}  // namespace
}  // namespace cistern
