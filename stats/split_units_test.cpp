// Inlined calls in libraries that were built with -gsplit-dwarf (tests/support/split_libraries.cmake), which call back.
#include "stats/split_units.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace cistern {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> library_names() {
  std::istringstream words(SPLIT_NAMES);
  return {std::istream_iterator<std::string>(words), {}};
}

const void* called_from;
void note_caller() { called_from = __builtin_return_address(0); }

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The working directory is a copy of the library's folder, without what lies beside the library.
class OfSplitUnits : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const fs::path library = built() / "split.so";
    void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(opened) << dlerror();
    const auto outer = reinterpret_cast<int (*)(void (*)())>(dlsym(opened, "split_outer"));
    ASSERT_TRUE(outer);
    outer(note_caller);
    Dl_info found;
    ASSERT_TRUE(dladdr(called_from, &found));
    address_ = reinterpret_cast<std::uintptr_t>(called_from) - 1 - reinterpret_cast<std::uintptr_t>(found.dli_fbase);
    dlclose(opened);
    fs::remove_all(copy_);
    fs::create_directory(copy_);
    fs::copy(library, copy_ / "split.so");
    before_ = fs::current_path();
    fs::current_path(copy_);
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(copy_);
  }

  static fs::path built() { return fs::path(SPLIT_FOLDER) / GetParam(); }
  Vector<HoldingFunction> functions() const { return SplitUnits("split.so", "split.so").functions_at(address_); }

  void expect_inlined_calls() const {
    const Vector<HoldingFunction> found = functions();
    ASSERT_EQ(found.size(), 3u);
    EXPECT_TRUE(found[0].symbol == "inner" || found[0].symbol == "_ZN5splitL5innerEPFvvE") << found[0].symbol;
    EXPECT_TRUE(found[0].call_file.ends_with("split_library.cpp")) << found[0].call_file;
    EXPECT_EQ(found[0].call_line, 200u);
    EXPECT_EQ(found[1].symbol, "_ZN5split6Middle4callEPFvvE");
    EXPECT_TRUE(found[1].call_file.ends_with("split_library.cpp")) << found[1].call_file;
    EXPECT_EQ(found[1].call_line, 300u);
    EXPECT_EQ(found[2].symbol, "split_outer");
    EXPECT_EQ(found[2].call_line, 0u);
  }

  // No read leaves the file, and each read ends, in every damaged file.
  void read_damaged(const fs::path& damaged, const std::string& whole) const {
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 1 + whole.size() / 300) {
      write(damaged, std::string_view(whole).substr(0, bytes));
      EXPECT_LE(functions().size(), 256u);
    }
    for (unsigned seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      std::string bytes = whole;
      for (unsigned changes = 1 + random() % 8; changes; --changes)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      write(damaged, bytes);
      EXPECT_LE(functions().size(), 256u);
    }
  }

 private:
  const fs::path copy_ = fs::temp_directory_path() / ("cistern_split_" + std::to_string(getpid()));
  fs::path before_;
  std::uint64_t address_ = 0;
};

TEST_P(OfSplitUnits, InlinedCallsAreNamedByTheFileBeside) {
  fs::copy(built() / "split.dwo", ".");
  expect_inlined_calls();
}

TEST_P(OfSplitUnits, InlinedCallsAreNamedByThePackage) {
  if (!fs::exists(built() / "packed.dwp")) GTEST_SKIP() << "nothing here makes one";
  fs::copy(built() / "packed.dwp", "split.so.dwp");
  expect_inlined_calls();
}

TEST_P(OfSplitUnits, NothingIsNamedWithoutTheFile) { EXPECT_TRUE(functions().empty()); }

TEST_P(OfSplitUnits, TheFileOfAnotherBuildIsNotBelieved) {
  fs::copy(built() / "other.dwo", "split.dwo");
  EXPECT_TRUE(functions().empty());
}

TEST_P(OfSplitUnits, APipeInThePlaceOfTheFileIsNotWaitedFor) {
  ASSERT_EQ(mkfifo("split.dwo", 0600), 0);
  EXPECT_TRUE(functions().empty());
}

TEST_P(OfSplitUnits, DamagedFilesDoNoHarm) {
  read_damaged("split.dwo", bytes_of(built() / "split.dwo"));
  fs::remove("split.dwo");
  if (fs::exists(built() / "packed.dwp")) read_damaged("split.so.dwp", bytes_of(built() / "packed.dwp"));
}

TEST_P(OfSplitUnits, ADamagedLibraryDoesNoHarm) {
  fs::copy(built() / "split.dwo", ".");
  read_damaged("split.so", bytes_of(built() / "split.so"));
}

INSTANTIATE_TEST_SUITE_P(Built, OfSplitUnits, testing::ValuesIn(library_names()),
                         [](const auto& tested) { return tested.param; });

TEST(GrowingList, HasNoMoreThanItsMost) {
  Growing<int> list(100);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(list.push(i));
  EXPECT_FALSE(list.push(100));
  EXPECT_EQ(list.size(), 100u);
  EXPECT_EQ(list[99], 99);
}

}  // namespace
}  // namespace cistern
