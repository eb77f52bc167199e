// A parent with OpenCL forks children that leave it alone: one ends by _exit, one executes another program; both get
// host memory. The parent's work goes on around them.
// harness: recycles
#include <spawn.h>
#include <sys/wait.h>

#include "observe.hpp"

extern char** environ;

static int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int main() {
  Setup cl;
  for (int round = 0; round < 3; ++round) {
    cl_mem buffer = cl.buffer(4096);
    put(cl.queue, buffer, 4096, round);
    clReleaseMemObject(cl.buffer(4096));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      std::vector<std::string> words(1000, std::string(100, 'x'));
      _exit(words.size() == 1000 ? 5 : 6);
    }
    say("child: %d", wait_for(child));
    child = fork();
    if (child == 0) {
      execlp("true", "true", nullptr);
      _exit(7);
    }
    say("executed: %d", wait_for(child));
    char name[] = "/bin/sh", option[] = "-c", script[] = "exit 4";
    char* arguments[] = {name, option, script, nullptr};
    say("spawn %d", posix_spawn(&child, name, nullptr, nullptr, arguments, environ));
    say("spawned: %d", wait_for(child));
    say("parent %s", contents(cl.queue, buffer, 4096).c_str());
    clReleaseMemObject(buffer);
  }
  cl.release();
  return finish();
}
