// What would spoil the process for other tests is done in a forked child; its failures are this process's.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace cistern::test {

// `special`: a status that is no failure either; then `*said_so` is true.
template <class Body>
void in_child(Body body, int special = 0, bool* said_so = nullptr) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    alarm(60);  // a child that hangs is a failure
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const bool is_special = special && WIFEXITED(status) && WEXITSTATUS(status) == special;
  if (said_so) *said_so = is_special;
  EXPECT_TRUE(is_special || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
      << (WIFSIGNALED(status) ? "child ended by signal " : "child ended with status ")
      << (WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

}  // namespace cistern::test
