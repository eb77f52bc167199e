// Opens and closes libraries with much thread-local memory, uses them in several threads each time, and frees what they
// gave after they are gone. argv: rounds, libraries.
#include <dlfcn.h>
#include <pthread.h>

#include <thread>
#include <vector>

#include "check.hpp"

namespace {

using check::fail;

constexpr int kThreads = 3;

void use(void* library, void** block) {
  auto function = reinterpret_cast<void* (*)(int)>(dlsym(library, "use_library"));
  if (!function) fail("%s", dlerror());
  *block = function(7);
  if (!*block) fail("thread-local memory is not fresh");
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = static_cast<int>(check::argument(count, arguments, 1, 10));
  std::vector<void*> blocks;
  // A thread that outlives every library, so that its thread-local memory of closed ones is given back in between.
  pthread_barrier_t opened, used;
  pthread_barrier_init(&opened, nullptr, 2);
  pthread_barrier_init(&used, nullptr, 2);
  void* library = nullptr;
  void* of_old_thread = nullptr;
  const long total = long{rounds} * (count - 2);
  std::thread old_thread([&] {
    for (long i = 0; i < total; ++i) {
      pthread_barrier_wait(&opened);
      use(library, &of_old_thread);
      pthread_barrier_wait(&used);
    }
  });
  long warm_kb = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int name = 2; name < count; ++name) {
      library = dlopen(arguments[name], RTLD_NOW | RTLD_LOCAL);
      if (!library) fail("%s", dlerror());
      pthread_barrier_wait(&opened);
      void* of_threads[kThreads];
      std::vector<std::thread> threads;
      for (int i = 1; i < kThreads; ++i) threads.emplace_back(use, library, &of_threads[i]);
      use(library, &of_threads[0]);
      for (std::thread& thread : threads) thread.join();
      pthread_barrier_wait(&used);
      blocks.insert(blocks.end(), of_threads, of_threads + kThreads);
      blocks.push_back(of_old_thread);
      if (dlclose(library)) fail("%s", dlerror());
      if (dlopen(arguments[name], RTLD_NOW | RTLD_NOLOAD)) fail("%s was not unloaded", arguments[name]);
    }
    while (blocks.size() > 40) {
      free(blocks.back());
      blocks.pop_back();
    }
    if (round == rounds / 10) warm_kb = check::resident_kb();
  }
  old_thread.join();
  for (void* block : blocks) free(block);
  const long end_kb = check::resident_kb();
  if (end_kb > 2 * warm_kb + 32 * 1024) fail("%ld KB after all rounds, %ld KB after a tenth", end_kb, warm_kb);
  printf("dlopen_tls: %d rounds\n", rounds);
  return 0;
}
