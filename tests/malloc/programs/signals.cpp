// Signal handlers that allocate and free while the program computes; it blocks them around its own malloc calls, so no
// call is ever interrupted by one. On the program's stack and on alternate ones, in the main thread and in another.
// argv: handlers per signal.
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <cstring>

#include "check.hpp"

namespace {

using check::fail;
using check::Random;

constexpr int kKept = 50;
std::atomic<int> handled[3];  // SIGALRM, SIGPROF, SIGUSR1
std::atomic<bool> ended;

int index_of(int signal) { return signal == SIGALRM ? 0 : signal == SIGPROF ? 1 : 2; }

void require_filled(const unsigned char* block) {
  for (size_t i = 1; i < 3u * block[0] + 2; ++i)
    if (block[i] != block[0]) fail("a block of a handler changed");
}

void handler(int signal) {
  // Handlers of one signal do not run at once: the signal is blocked meanwhile, and only one thread gets it.
  static unsigned char* kept[3][kKept];
  const int index = index_of(signal);
  const int round = handled[index];
  unsigned char*& place = kept[index][round % kKept];
  if (place) {
    require_filled(place);
    free(place);
  }
  const auto fill = static_cast<unsigned char>(round % 200 + 1);
  place = static_cast<unsigned char*>(malloc(3u * fill + 2));
  if (!place) fail("no block in a handler");
  memset(place, fill, 3u * fill + 2);
  free(malloc(round % 7 ? 100 : 200000));
  free(calloc(10, 100));
  free(realloc(malloc(10), 3000));
  ++handled[index];
}

void use_alternate_stack() {
  stack_t stack = {};
  stack.ss_size = 65536;
  stack.ss_sp = malloc(stack.ss_size);
  if (sigaltstack(&stack, nullptr)) fail("no alternate stack");
}

void compute() {
  static volatile uint64_t sum;
  for (int i = 0; i < 20000; ++i) sum = sum * 3 + static_cast<uint64_t>(i);
}

void allocate_undisturbed(const sigset_t& signals, Random& random) {
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  void* blocks[100];
  for (void*& block : blocks) block = malloc(random.below(2000));
  for (void* block : blocks) free(block);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  return set;
}

// Gets SIGUSR1 from itself and leaves the timers' signals to the main thread.
void* other_thread(void*) {
  const sigset_t timers = set_of({SIGALRM, SIGPROF});
  pthread_sigmask(SIG_BLOCK, &timers, nullptr);
  use_alternate_stack();
  Random random(2);
  const sigset_t own = set_of({SIGUSR1});
  while (!ended) {
    compute();
    pthread_kill(pthread_self(), SIGUSR1);
    allocate_undisturbed(own, random);
  }
  return nullptr;
}

}  // namespace

int main(int count, char** arguments) {
  const int wanted = static_cast<int>(check::argument(count, arguments, 1, 60));
  use_alternate_stack();
  struct sigaction action = {};
  action.sa_handler = handler;
  sigfillset(&action.sa_mask);   // one handler in another would be in malloc twice: the C library hangs there
  action.sa_flags = SA_RESTART;  // on the program's own stack
  sigaction(SIGPROF, &action, nullptr);
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(SIGALRM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  const sigset_t timers = set_of({SIGALRM, SIGPROF, SIGUSR1});
  pthread_sigmask(SIG_BLOCK, &timers, nullptr);  // while pthread_create allocates
  pthread_t other;
  // The other thread starts with everything blocked and opens its own signal.
  if (pthread_create(
          &other, nullptr,
          [](void* unused) -> void* {
            const sigset_t own = set_of({SIGUSR1});
            pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
            return other_thread(unused);
          },
          nullptr))
    fail("no thread");
  const itimerval often = {{0, 700}, {0, 700}};
  setitimer(ITIMER_REAL, &often, nullptr);
  setitimer(ITIMER_PROF, &often, nullptr);
  const sigset_t own = set_of({SIGALRM, SIGPROF});
  pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  Random random(1);
  while (handled[0] < wanted || handled[1] < wanted || handled[2] < wanted) {
    compute();
    allocate_undisturbed(own, random);
  }
  const itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
  setitimer(ITIMER_PROF, &never, nullptr);
  pthread_sigmask(SIG_BLOCK, &own, nullptr);
  ended = true;
  pthread_join(other, nullptr);
  printf("signals: at least %d handlers of each of 3 signals ran\n", wanted);
  return 0;
}
