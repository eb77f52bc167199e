// The shim's lines: form, order, limits. Descriptor 2 is a log file while a test listens.
#include "shim/process/log.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "shim/process/standard_error.hpp"

namespace cistern {
namespace {

// The lines that `action` prints: descriptor 2 is a log file meanwhile.
std::string said_by(const std::function<void()>& action) {
  note_standard_error();
  std::string path = testing::TempDir() + "cistern-log-XXXXXX";
  close(mkstemp(path.data()));
  const int kept = dup(STDERR_FILENO);
  const int file = open(path.c_str(), O_WRONLY | O_APPEND);
  dup2(file, STDERR_FILENO);
  close(file);
  action();
  dup2(kept, STDERR_FILENO);
  close(kept);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  unlink(path.c_str());
  return text.str();
}

TEST(Log, OneLineEach) {
  EXPECT_EQ(said_by([] { warn_line("something {} %s happened"); }), "cistern: something {} %s happened\n");
  EXPECT_EQ(said_by([] { warn_line("two\nlines\x1b"); }), "cistern: two lines \n");
}

TEST(Log, DeferredLinesWaitForTheFirstOther) {
  EXPECT_EQ(said_by([] {
              warn_later("first");
              warn_later("second");
            }),
            "");
  EXPECT_EQ(said_by([] { warn_line("now"); }), "cistern: first\ncistern: second\ncistern: now\n");
  EXPECT_EQ(said_by([] { say_deferred_lines(); }), "");
}

TEST(Log, AFloodOfDeferredLinesIsBounded) {
  for (int i = 0; i < 1000; ++i) warn_later("option " + std::to_string(i));
  std::istringstream lines(said_by([] { say_deferred_lines(); }));
  std::string line;
  for (int i = 0; i < 32; ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(line, "cistern: option " + std::to_string(i));
  }
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(Log, TheSameMisuseIsSaidTenTimes) {
  const std::string said = said_by([] {
    for (int i = 0; i < 25; ++i)
      warn_line("release(0x" + std::to_string(1000 + i) + "ab): unknown, call " + std::to_string(i));
    warn_line("another matter");
  });
  std::string expected;
  for (int i = 0; i < 10; ++i)
    expected += "cistern: release(0x" + std::to_string(1000 + i) + "ab): unknown, call " + std::to_string(i) + "\n";
  EXPECT_EQ(said, expected + "cistern: another matter\n");
  EXPECT_EQ(said_by([] { say_limited_lines(); }), "cistern: 15 more lines like: release(0x1000ab): unknown, call 0\n");
  EXPECT_EQ(said_by([] { say_limited_lines(); }), "");
}

TEST(Log, LinesThatAreAlikeByNameAreSaidTenTimes) {
  const std::string said = said_by([] {
    for (int i = 0; i < 25; ++i) warn_line("of " + std::string(static_cast<std::size_t>(i), 'x'), "out of memory");
  });
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 10);
  EXPECT_EQ(said_by([] { say_limited_lines(); }), "cistern: 15 more lines like: of \n");
}

TEST(Log, ManyKindsStayWithinTheTable) {
  const std::string said = said_by([] {
    for (int i = 0; i < 500; ++i) warn_line("kind " + std::string(static_cast<std::size_t>(i), 'x'));
  });
  EXPECT_LT(std::count(said.begin(), said.end(), '\n'), 200);
  EXPECT_GT(std::count(said.begin(), said.end(), '\n'), 40);
}

TEST(Log, LinesOfThreadsDoNotMix) {
  const std::string said = said_by([] {
    std::vector<std::thread> threads;
    for (char letter : {'a', 'b', 'c', 'd'})
      threads.emplace_back([letter] {
        for (int i = 0; i < 5; ++i) warn_line("from " + std::string(300, letter));
      });
    for (std::thread& thread : threads) thread.join();
  });
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    ASSERT_EQ(line.size(), 9u + 5 + 300);
    EXPECT_EQ(line.substr(14), std::string(300, line.back()));
  }
}

}  // namespace
}  // namespace cistern
