// Lines of /proc/PID/task/ID/syscall, and which of those calls may be stopped.
#include "shim/judged_copy/waiting_call.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

namespace cistern {
namespace {

std::string line_of(long number, std::uintptr_t first = 0, std::uintptr_t second = 0, std::uintptr_t third = 0,
                    std::uintptr_t fourth = 0) {
  char line[200];
  std::snprintf(line, sizeof line, "%ld 0x%lx 0x%lx 0x%lx 0x%lx 0x0 0x0 0x7ffd1000 0x7f001234\n", number, first, second,
                third, fourth);
  return line;
}
bool may_be_stopped(const std::string& line) { return answers_as_before(parse_waiting_call(line)); }

TEST(WaitingCall, LinesAreRead) {
  const WaitingCall call = parse_waiting_call("7 0x1 0x22 0x0 0xffffffffffffffff 0x5 0x6 0x7ffd1000 0x7f001234\n");
  EXPECT_TRUE(call.is_known);
  EXPECT_EQ(call.number, 7);
  EXPECT_EQ(call.arguments[1], 0x22u);
  EXPECT_EQ(call.arguments[3], ~std::uintptr_t{0});
  EXPECT_EQ(call.stack, 0x7ffd1000u);
  const WaitingCall faults = parse_waiting_call("-1 0x7ffd1000 0x7f001234");
  EXPECT_TRUE(faults.is_known);
  EXPECT_EQ(faults.number, WaitingCall::kRuns);
  EXPECT_EQ(faults.stack, 0x7ffd1000u);
  EXPECT_TRUE(parse_waiting_call("running\n").is_known);
}

TEST(WaitingCall, ThreadsOfTheKernelHaveNoStack) {
  EXPECT_TRUE(parse_waiting_call("425 0x8 0x7fff7882a670 0x0 0x0 0x0 0x0 0x0 0x0\n").is_kernels());
  EXPECT_FALSE(parse_waiting_call("running\n").is_kernels());
  EXPECT_FALSE(parse_waiting_call(line_of(SYS_futex)).is_kernels());
}

TEST(WaitingCall, WhatIsNoSuchLineSaysNothing) {
  for (const char* line : {"", "\n", "7", "7 0x1", "walking", "7 0x1 0x2 0x3 0x4 0x5 0x6 0x7", "-1 0x7ffd1000",
                           "7 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8 0x9", "7 0x1 0x2 0x3 zero 0x5 0x6 0x7 0x8"}) {
    const WaitingCall call = parse_waiting_call(line);
    EXPECT_FALSE(call.is_known) << line;
    EXPECT_EQ(call.stack, 0u) << line;
    EXPECT_FALSE(answers_as_before(call)) << line;
  }
}

TEST(WaitingCall, CallsThatBeginAnewMayBeStopped) {
  EXPECT_TRUE(may_be_stopped("running\n"));
  for (const long number : {SYS_futex, SYS_ppoll, SYS_nanosleep, SYS_clock_nanosleep, SYS_wait4, SYS_rt_sigsuspend})
    EXPECT_TRUE(may_be_stopped(line_of(number))) << number;
}

TEST(WaitingCall, CallsThatMayHaveDoneAPartMayNot) {
  for (const long number : {SYS_write, SYS_writev, SYS_sendto, SYS_sendmsg, SYS_ioctl, SYS_recvmmsg, SYS_splice})
    EXPECT_FALSE(may_be_stopped(line_of(number))) << number;
  EXPECT_FALSE(may_be_stopped(line_of(SYS_recvfrom, 3, 0, 100, MSG_WAITALL)));
  EXPECT_FALSE(may_be_stopped(line_of(SYS_recvmsg, 3, 0, MSG_WAITALL)));
  EXPECT_FALSE(may_be_stopped(line_of(SYS_io_uring_enter, 3, 2)));
  EXPECT_FALSE(may_be_stopped(line_of(SYS_io_uring_enter, 3, 0, 2)));
  EXPECT_FALSE(may_be_stopped(line_of(SYS_io_getevents, 3, 2)));
}

// On other processors than x86-64 those that would answer EINTR are left alone.
TEST(WaitingCall, CallsThatWouldAnswerEintrWhereTheyCanBeMadeOnceMore) {
#if defined(__x86_64__)
  constexpr bool kMay = true;
#else
  constexpr bool kMay = false;
#endif
  for (const long number : {SYS_epoll_pwait, SYS_rt_sigtimedwait, SYS_semtimedop, SYS_io_getevents, SYS_accept4})
    EXPECT_EQ(may_be_stopped(line_of(number)), kMay) << number;
  EXPECT_EQ(may_be_stopped(line_of(SYS_io_uring_enter, 3, 0, 1)), kMay);
  EXPECT_EQ(may_be_stopped(line_of(SYS_io_getevents, 3, 1)), kMay);
  int sockets[2], least = 10;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const auto receives = line_of(SYS_recvfrom, static_cast<std::uintptr_t>(sockets[0]), 0, 100, 0);
  EXPECT_EQ(may_be_stopped(receives), kMay);
  setsockopt(sockets[0], SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
  EXPECT_FALSE(may_be_stopped(receives)) << "some of so many bytes may be there";
  for (const int one : sockets) close(one);
}

TEST(WaitingCall, ReadingGoesByWhatIsRead) {
  int pipe_ends[2], sockets[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const int counter = eventfd(0, 0), device = open("/dev/zero", O_RDONLY), file = open("/proc/self/exe", O_RDONLY);
  const auto reads = [](int from) { return may_be_stopped(line_of(SYS_read, static_cast<std::uintptr_t>(from))); };
  EXPECT_TRUE(reads(pipe_ends[0]));
  EXPECT_TRUE(reads(counter));
  EXPECT_FALSE(reads(device));
  EXPECT_FALSE(reads(file));
  EXPECT_FALSE(reads(999));
#if defined(__x86_64__)
  EXPECT_TRUE(reads(sockets[0]));
#endif
  for (const int one : {pipe_ends[0], pipe_ends[1], sockets[0], sockets[1], counter, device, file}) close(one);
}

}  // namespace
}  // namespace cistern
