// Thousands of short threads that allocate, hand blocks to others and end (by return, pthread_exit or cancellation),
// with thread_local and pthread_key destructors that allocate and free, in all rounds that POSIX has for them. What the
// dead left is freed by survivors and newcomers. Memory must not grow with the number of threads. argv: threads, seed.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <thread>

#include "check.hpp"

namespace {

using check::fail;
using check::Random;

constexpr uint32_t kPlaces = 4096;  // of what is handed over
constexpr int kBlocksPerThread = 30;
constexpr int kTogether = 8;

std::atomic<size_t*> handed_over[kPlaces];
std::atomic<long> destructor_rounds;
std::atomic<long> thread_local_ends;
std::atomic<bool> ended;
pthread_key_t round_key, second_key;

void* make(Random& random) {
  const uint32_t draw = random.below(100);
  const size_t bytes = 16 + (draw < 80 ? random.below(300) : draw < 98 ? random.below(6000) : random.below(90000));
  size_t* block = static_cast<size_t*>(random.below(6) ? malloc(bytes) : calloc(1, bytes));
  if (!block) fail("no block of %zu bytes", bytes);
  *block = bytes;
  memcpy(reinterpret_cast<char*>(block) + bytes - 8, &bytes, 8);
  return block;
}

void end(void* start) {
  if (!start) return;
  const char* block = static_cast<const char*>(start);
  size_t first, last;
  memcpy(&first, block, 8);
  if (first > 100000) fail("%p says %zx", start, first);
  memcpy(&last, block + first - 8, 8);
  if (last != first) fail("%p starts with %zu and ends with %zx", start, first, last);
  free(start);
}

void hand_over(Random& random) { end(handed_over[random.below(kPlaces)].exchange(static_cast<size_t*>(make(random)))); }

// Counts its rounds in its own value; gets itself called again until the last one.
void in_every_round(void* value) {
  int* round = static_cast<int*>(value);
  Random random(static_cast<uint64_t>(*round) + 5);
  for (int i = 0; i < 5; ++i) end(make(random));
  hand_over(random);
  ++destructor_rounds;
  if (++*round == PTHREAD_DESTRUCTOR_ITERATIONS) return free(round);
  int* next = static_cast<int*>(malloc(sizeof *next));
  *next = *round;
  free(round);
  pthread_setspecific(round_key, next);
  if (*next == 2) pthread_setspecific(second_key, malloc(5000));
}

struct AtThreadEnd {
  Random random{3};
  void* kept = make(random);
  ~AtThreadEnd() {
    end(kept);
    for (int i = 0; i < 5; ++i) end(make(random));
    hand_over(random);
    ++thread_local_ends;
  }
};

void* short_life(void* seed) {
  thread_local AtThreadEnd at_end;
  Random random(reinterpret_cast<uintptr_t>(seed));
  end(at_end.kept);
  at_end.kept = make(random);
  pthread_setspecific(round_key, calloc(1, sizeof(int)));
  void* blocks[kBlocksPerThread];
  for (void*& block : blocks) block = make(random);
  for (void* block : blocks) {
    if (random.below(2)) {
      end(block);
    } else {
      end(handed_over[random.below(kPlaces)].exchange(static_cast<size_t*>(block)));
    }
  }
  switch (random.below(3)) {
    case 0:
      pthread_exit(nullptr);
    case 1:
      pthread_cancel(pthread_self());
      pthread_testcancel();
      fail("a cancelled thread lives");
    default:
      return nullptr;
  }
}

void survive(uint64_t seed) {
  Random random(seed);
  while (!ended) {
    end(handed_over[random.below(kPlaces)].exchange(nullptr));
    if (random.below(16) == 0) hand_over(random);
    if (random.below(64) == 0) usleep(100);
  }
}

void run(uint64_t threads, uint64_t& seed) {
  pthread_t running[kTogether];
  for (uint64_t i = 0; i < threads; i += kTogether) {
    for (pthread_t& thread : running)
      if (pthread_create(&thread, nullptr, short_life, reinterpret_cast<void*>(++seed))) fail("no thread");
    for (pthread_t thread : running) pthread_join(thread, nullptr);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const uint64_t threads = check::argument(count, arguments, 1, 4000) / kTogether * kTogether;
  check::seed() = check::argument(count, arguments, 2, 1);
  uint64_t seed = check::seed() * 10000000;
  if (pthread_key_create(&round_key, in_every_round) || pthread_key_create(&second_key, free)) fail("no key");
  std::thread survivors[] = {std::thread(survive, seed + 1000001), std::thread(survive, seed + 1000002)};
  const uint64_t warm = std::max<uint64_t>(threads / 10 / kTogether * kTogether, kTogether);
  run(warm, seed);
  const long before_kb = check::resident_kb();
  run(threads - warm, seed);
  const long after_kb = check::resident_kb();
  ended = true;
  for (std::thread& survivor : survivors) survivor.join();
  for (auto& place : handed_over) end(place.exchange(nullptr));
  // Survivors and newcomers take away what the dead left, so about the same is live after any number of threads.
  if (after_kb > 2 * before_kb + 32 * 1024)
    fail("%ld KB after %llu threads, %ld KB after %llu", after_kb, static_cast<unsigned long long>(threads), before_kb,
         static_cast<unsigned long long>(warm));
  const long rounds = PTHREAD_DESTRUCTOR_ITERATIONS * static_cast<long>(threads);
  if (destructor_rounds != rounds) fail("%ld rounds of destructors, not %ld", destructor_rounds.load(), rounds);
  if (thread_local_ends != static_cast<long>(threads)) fail("%ld thread_local ends", thread_local_ends.load());
  printf("thread_death: %llu threads, seed %llu: nothing lost, no growth\n", static_cast<unsigned long long>(threads),
         static_cast<unsigned long long>(check::seed()));
  return 0;
}
