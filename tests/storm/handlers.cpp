// Actors: signal handlers. A timer's handler allocates and forks; it runs where the thread is not in the C library, so
// it may. Another timer's handler only counts and interrupts any thread anywhere.
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/storm/storm.hpp"

namespace storm {
namespace {

std::atomic<uint64_t> interrupted{0}, handled{0};

sigset_t alarm_only() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  return set;
}

void count_only(int) { ++interrupted; }

void allocate_and_fork(int) {
  const int before = errno;
  Random random(++handled);
  churn_blocks(random, 5);
  free(realloc(malloc(10), 3000));
  const pid_t child = fork();
  if (child == 0) {
    churn_blocks(random, 5);
    _exit(0);
  }
  if (child < 0) fail("fork in a handler: %s", strerror(errno));
  require_good_end(child, "a child of a handler");
  errno = before;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaddset(&action.sa_mask, SIGPROF);  // forking.cpp: WithoutProfiling
  sigaction(signal, &action, nullptr);
}

bool start_timers() {
  handle(SIGALRM, allocate_and_fork);
  handle(SIGPROF, count_only);
  const itimerval often = {{0, 3000}, {0, 3000}};
  return setitimer(ITIMER_PROF, &often, nullptr) == 0;
}

// Alarms are blocked in all other threads, and in this one while it allocates.
void take_alarms(Random& random) {
  const sigset_t alarms = alarm_only();
  pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);
  // One alarm for each turn: of a timer's that goes on, the handlers could leave no time between them.
  const itimerval once = {{0, 0}, {0, 1 + static_cast<suseconds_t>(random.below(3000))}};
  setitimer(ITIMER_REAL, &once, nullptr);
  static volatile uint64_t sum;
  for (uint32_t i = 0; i < random.below(200000); ++i) sum = sum * 3 + i;
  usleep(2000);
  pthread_sigmask(SIG_BLOCK, &alarms, nullptr);
  churn_blocks(random, 50);
}

void stop_timers() {
  const itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
  setitimer(ITIMER_PROF, &never, nullptr);
  if (!handled || !interrupted) fail("no handler ran");
}

const Registered handlers({"handlers", 1, take_alarms, start_timers, stop_timers});

}  // namespace
}  // namespace storm
