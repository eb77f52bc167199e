// The parent forks before its first CUDA call: parent and child each use CUDA on their own.
#include <sys/wait.h>

#include "../program.hpp"

static void use(const char* who) {
  for (int round = 0; round < 3; ++round) {
    unsigned* block = device_block(10000);
    fill(nullptr, block, 10000, 4);
    say("%s: %s", who, contents(block, 10000).c_str());
    NEED(cudaFree(block));
  }
}

int main() {
  const pid_t child = fork();
  if (child == 0) {
    use("child");
    exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  say("child ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  use("parent");
  return finish();
}
