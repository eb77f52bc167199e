// A program with one thread, whose timer forks: the handler interrupts it anywhere, in malloc, in the C library's
// streams, in fork itself. The C library allows that in a program that never had a second thread. What the children do
// is allowed there too: nothing but _exit. Options: --forks N (300), --seed N (1), --folder PATH (/tmp).
#include <malloc.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/malloc/programs/check.hpp"
#include "tests/storm/lines.hpp"

namespace {

using check::fail;
using check::Random;
using storm::read_lines;

volatile sig_atomic_t forked = 0;

void require_good_end(pid_t child, const char* what) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail("waitpid: %s", strerror(errno));
  if (status) fail("%s ended with status %x", what, status);
}

// One alarm after the other: a timer's that goes on would leave the program no time where children are slow.
void set_alarm() {
  const itimerval once = {{0, 0}, {0, 3000}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

void fork_in_handler(int) {
  const int before = errno;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  if (child < 0) fail("fork in a handler: %s", strerror(errno));
  require_good_end(child, "a child of a handler");
  forked = forked + 1;
  set_alarm();
  errno = before;
}

void start_timer() {
  struct sigaction action = {};
  action.sa_handler = fork_in_handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  set_alarm();
}

void replace(void*& block, Random& random) {
  const size_t bytes = random.below(16) ? random.below(2000) : random.below(500000);
  if (random.below(2)) {
    free(block);
    block = malloc(bytes + 1);
  } else {
    block = realloc(block, bytes + 1);
  }
  if (!block) fail("no block of %zu bytes", bytes);
  memset(block, 1, bytes + 1);
}

void fork_here() {
  const pid_t child = fork();
  if (child == 0) exit(0);
  if (child < 0) fail("fork: %s", strerror(errno));
  require_good_end(child, "a child");
}

}  // namespace

int main(int count, char** arguments) {
  int wanted = 300;
  for (int i = 1; i + 1 < count; i += 2) {
    if (!strcmp(arguments[i], "--forks")) wanted = atoi(arguments[i + 1]);
    if (!strcmp(arguments[i], "--seed")) check::seed() = strtoull(arguments[i + 1], nullptr, 10);
  }
  Random random(check::seed());
  FILE* const lines = storm::make_lines(3, 300000);
  if (!lines) fail("no file");
  void* blocks[200] = {};
  start_timer();
  while (forked < wanted) {
    for (int i = 0; i < 200; ++i) replace(blocks[random.below(200)], random);
    if (random.below(4) == 0) read_lines(lines);
    if (random.below(4) == 0) fflush(nullptr);
    if (random.below(4) == 0) fork_here();
    if (mallinfo2().arena > size_t{1} << 40) fail("mallinfo2 counts too much");
  }
  signal(SIGALRM, SIG_IGN);
  for (void* block : blocks) free(block);
  printf("storm: alone, seed %llu: %d forks in handlers: holds; ends by exit\n",
         static_cast<unsigned long long>(check::seed()), wanted);
  return 0;
}
