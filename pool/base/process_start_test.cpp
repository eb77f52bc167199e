// What a process was started with is found whatever the program did to its environment since.
#include "pool/base/process_start.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/support/child.hpp"

namespace cistern {
namespace {

void expect_what_the_kernel_says() {
  std::ifstream file("/proc/self/auxv", std::ios::binary);
  unsigned long entry[2] = {};
  int found = 0;
  for (; file.read(reinterpret_cast<char*>(entry), sizeof entry) && entry[0]; ++found)
    EXPECT_EQ(start_value(entry[0]), entry[1]) << "type " << entry[0];
  EXPECT_GT(found, 8);
  EXPECT_EQ(start_value(4000), 0);
  EXPECT_FALSE(started_with_more_rights());
}

TEST(ProcessStartTest, ValuesAreThoseOfTheKernel) { expect_what_the_kernel_says(); }

TEST(ProcessStartTest, ArgumentsAreThoseOfTheProcess) {
  char** const arguments = start_arguments();
  ASSERT_TRUE(arguments && arguments[0]);
  EXPECT_NE(std::string(arguments[0]).find("pool"), std::string::npos);
}

// In a program of its own: the place of the vector is looked for once. It says so when it has looked: without a test of
// that name all would be well, too.
constexpr int kLooked = 42;
constexpr const char* kChange = "PROCESS_START_TEST_CHANGE";
[[noreturn]] void run_anew(const char* change) {
  setenv(kChange, change, 1);
  execl("/proc/self/exe", "pool", "--gtest_filter=ProcessStartTest.InAChangedEnvironment", nullptr);
  _exit(99);
}

TEST(ProcessStartTest, InAChangedEnvironment) {
  const char* const value = getenv(kChange);
  if (!value) GTEST_SKIP() << "a part of other tests";
  const std::string change = value;
  if (change == "emptied") {
    for (char** entry = environ; *entry; ++entry) *entry = nullptr;
  } else if (change == "shortened") {
    environ[1] = nullptr;  // old pointers stay behind it
  } else {
    ASSERT_EQ(change, "unset");
    for (int i = 0; i < 5 && environ[0]; ++i) {
      const std::string entry = environ[0];
      unsetenv(entry.substr(0, entry.find('=')).c_str());
    }
  }
  expect_what_the_kernel_says();
  if (!HasFailure()) _exit(kLooked);
}

void expect_that_it_looks(const char* change) {
  bool looked = false;
  test::in_child([=] { run_anew(change); }, kLooked, &looked);
  EXPECT_TRUE(looked);
}

TEST(ProcessStartTest, AnEmptiedEnvironment) { expect_that_it_looks("emptied"); }
TEST(ProcessStartTest, AShortenedEnvironment) { expect_that_it_looks("shortened"); }
TEST(ProcessStartTest, VariablesThatWereTakenOut) { expect_that_it_looks("unset"); }

}  // namespace
}  // namespace cistern
