// The files on descriptor 2 that are written to, and writes that fail without a signal.
#include "shim/process/standard_error.hpp"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace cistern {
namespace {

// Puts a file on descriptor 2 and takes it away again.
class OnTwo {
 public:
  OnTwo(const char* path, int flags) {
    note_standard_error();
    kept_ = dup(STDERR_FILENO);
    const int file = open(path, flags, 0600);
    EXPECT_NE(file, -1);
    dup2(file, STDERR_FILENO);
    close(file);
  }
  ~OnTwo() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
  }

 private:
  int kept_;
};

std::string temporary_file() {
  std::string path = testing::TempDir() + "cistern-standard-error-XXXXXX";
  close(mkstemp(path.data()));
  return path;
}

TEST(StandardError, IsTwoWhileItIsTheFileOfTheStart) {
  note_standard_error();
  EXPECT_EQ(standard_error(), STDERR_FILENO);
}

TEST(StandardError, AnotherFileIsNoPlaceForLines) {
  const std::string path = temporary_file();
  int plain = 0, appending = 0, null = 0;
  {
    OnTwo file(path.c_str(), O_WRONLY);
    plain = standard_error();
  }
  {
    OnTwo file(path.c_str(), O_WRONLY | O_APPEND);
    appending = standard_error();
  }
  {
    OnTwo file("/dev/null", O_WRONLY);
    null = standard_error();
  }
  EXPECT_EQ(plain, -1);
  EXPECT_EQ(appending, STDERR_FILENO);
  EXPECT_EQ(null, STDERR_FILENO);
  unlink(path.c_str());
}

TEST(StandardErrorDeathTest, IsHeldWhenTheProgramClosesIt) {
  EXPECT_EXIT(
      {
        hold_standard_error();
        close(STDERR_FILENO);
        const int held = standard_error();
        const bool private_copy = held > STDERR_FILENO && (fcntl(held, F_GETFD) & FD_CLOEXEC);
        const bool said = private_copy && write_whole(held, "still said\n") == 0;
        _exit(said ? 5 : 6);
      },
      testing::ExitedWithCode(5), "still said");
}

TEST(WriteWhole, ClosedPipeIsAnErrorAndNotASignal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  errno = 77;
  EXPECT_EQ(write_whole(ends[1], "text"), EPIPE);
  EXPECT_EQ(errno, 77);
  close(ends[1]);
  sigset_t pending, mask;
  sigpending(&pending);
  EXPECT_FALSE(sigismember(&pending, SIGPIPE));
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_FALSE(sigismember(&mask, SIGPIPE));
}

TEST(WriteWhole, ASignalThatWasPendingStaysSo) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  raise(SIGPIPE);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write_whole(ends[1], "text"), EPIPE);
  close(ends[1]);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_TRUE(sigismember(&pending, SIGPIPE));
  const timespec no_wait{};
  sigtimedwait(&set, nullptr, &no_wait);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

TEST(WriteWhole, ASlowReaderOfANonBlockingPipeGetsAll) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  const std::string text(1 << 20, 'x');
  std::size_t read_bytes = 0;
  std::thread reader([&] {
    std::string buffer(50000, ' ');
    while (read_bytes < text.size()) {
      usleep(500);
      const ssize_t got = read(ends[0], buffer.data(), buffer.size());
      if (got > 0) read_bytes += static_cast<std::size_t>(got);
      if (got == 0) break;
    }
  });
  EXPECT_EQ(write_whole(ends[1], text), 0);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  EXPECT_EQ(read_bytes, text.size());
}

TEST(WriteWhole, FailuresHaveTheirNumber) {
  EXPECT_EQ(write_whole(-1, "text"), EBADF);
  const int full = open("/dev/full", O_WRONLY);
  EXPECT_EQ(write_whole(full, "text"), ENOSPC);
  EXPECT_EQ(write_whole(full, ""), 0);
  close(full);
}

}  // namespace
}  // namespace cistern
