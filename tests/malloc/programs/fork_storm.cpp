// Forks while threads allocate and free: each child checks and frees what it inherited from every thread, starts
// threads of its own, forks again now and then, and ends normally. Two threads fork, one of them not the main one;
// vfork and exec in between. A child that hangs is ended by its alarm. argv: forks of each forking thread, seed.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

using check::fail;
using check::Random;

constexpr int kThreads = 3;
constexpr int kPlaces = 64;
constexpr unsigned kLimitSeconds = 60;

// A place holds a whole, live block or nothing at every moment, so at the moment of a fork too.
std::atomic<size_t*> places[kThreads + 2][kPlaces];
std::atomic<bool> ended;

size_t random_size(Random& random) {
  const uint32_t draw = random.below(100);
  const size_t bytes = draw < 70 ? random.below(500) : draw < 95 ? random.below(20000) : random.below(400000);
  return bytes + 2 * sizeof(size_t);
}

// First and last word tell the size.
size_t* filled(void* start, size_t bytes) {
  if (!start) fail("no block of %zu bytes", bytes);
  size_t* block = static_cast<size_t*>(start);
  *block = bytes;
  memcpy(static_cast<char*>(start) + bytes - sizeof bytes, &bytes, sizeof bytes);
  return block;
}

void require_whole(const size_t* block) {
  size_t last;
  const size_t bytes = *block;
  if (bytes > 1 << 20) fail("%p says %zx", static_cast<const void*>(block), bytes);
  memcpy(&last, reinterpret_cast<const char*>(block) + bytes - sizeof last, sizeof last);
  if (last != bytes) fail("%p starts with %zu and ends with %zx", static_cast<const void*>(block), bytes, last);
}

void replace(std::atomic<size_t*>& place, Random& random) {
  if (size_t* old = place.exchange(nullptr)) {
    require_whole(old);
    if (random.below(8) == 0) {
      const size_t bytes = random_size(random);
      place = filled(realloc(old, bytes), bytes);
      return;
    }
    free(old);
  }
  const size_t bytes = random_size(random);
  place = filled(random.below(4) ? malloc(bytes) : calloc(1, bytes), bytes);
}

void churn(int thread, uint64_t seed) {
  Random random(seed);
  while (!ended) {
    // Now and then another thread's place, so that blocks are freed by others.
    const int owner = random.below(8) ? thread : static_cast<int>(random.below(kThreads));
    replace(places[owner][random.below(kPlaces)], random);
  }
}

void require_success(pid_t child, const char* who) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) fail("waitpid: %s", strerror(errno));
  if (WIFSIGNALED(status))
    fail("%s ended by signal %d%s", who, WTERMSIG(status), WTERMSIG(status) == SIGALRM ? " (hung)" : "");
  if (status != 0) fail("%s ended with status %d", who, WEXITSTATUS(status));
}

// What a child does: with the blocks it inherited, and with threads of its own.
void use_inherited(Random& random, std::vector<std::thread>& threads) {
  for (auto& of_a_thread : places) {
    for (auto& place : of_a_thread) {
      size_t* block = place.exchange(nullptr);
      if (!block) continue;
      require_whole(block);
      if (random.below(4) == 0) {
        const size_t bytes = random_size(random);
        block = filled(realloc(block, bytes), bytes);
      }
      free(block);
    }
  }
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([thread, seed = random.next()] {
      Random own(seed);
      for (int i = 0; i < 300; ++i) replace(places[thread][own.below(kPlaces)], own);
    });
  }
  for (int i = 0; i < 300; ++i) replace(places[2][random.below(kPlaces)], random);
}

void join(std::vector<std::thread>& threads) {
  for (std::thread& thread : threads) thread.join();
}

[[noreturn]] void in_child(Random& random) {
  alarm(kLimitSeconds);
  std::vector<std::thread> threads;
  use_inherited(random, threads);
  if (random.below(3) == 0) {
    const pid_t grandchild = fork();
    if (grandchild < 0) fail("fork in a child: %s", strerror(errno));
    if (grandchild == 0) {
      alarm(kLimitSeconds);
      std::vector<std::thread> own;  // the others are not here
      use_inherited(random, own);
      join(own);
      exit(0);
    }
    require_success(grandchild, "a grandchild");
  }
  join(threads);
  exit(0);
}

void vfork_and_exec() {
  const pid_t child = vfork();
  if (child == 0) {
    execl("/bin/true", "/bin/true", nullptr);
    _exit(9);
  }
  if (child < 0) fail("vfork: %s", strerror(errno));
  require_success(child, "/bin/true");
}

void storm(int forks, int thread, uint64_t seed) {
  Random random(seed);
  for (int i = 0; i < forks; ++i) {
    for (int j = 0; j < 20; ++j) replace(places[thread][random.below(kPlaces)], random);
    if (i % 16 == 7) vfork_and_exec();
    const pid_t child = fork();
    if (child < 0) fail("fork: %s", strerror(errno));
    if (child == 0) in_child(random);
    require_success(child, "a child");
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int forks = static_cast<int>(check::argument(count, arguments, 1, 100));
  check::seed() = check::argument(count, arguments, 2, 1);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(churn, thread, check::seed() + 100 + thread);
  std::thread forker(storm, forks, kThreads, check::seed() + 200);
  storm(forks, kThreads + 1, check::seed() + 300);
  forker.join();
  ended = true;
  for (std::thread& thread : threads) thread.join();
  for (auto& of_a_thread : places)
    for (auto& place : of_a_thread) free(place.exchange(nullptr));
  printf("fork_storm: 2 x %d forks, seed %llu: all children well\n", forks,
         static_cast<unsigned long long>(check::seed()));
  return 0;
}
