// Under a limit of address space or data: the process starts, takes what it gets, is told ENOMEM, gives all back,
// and gets it again. argv: as or data, MiB, run or run_in_thread; starts itself anew under the limit.
#include <pthread.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>

#include "check.hpp"

namespace {

using check::fail;

struct Taken {
  size_t blocks = 0;
  size_t bytes = 0;
};

// A chain through the first words, so that nothing else has to be allocated.
void** take_until_refused(size_t bytes, Taken& taken) {
  void** chain = nullptr;
  for (;;) {
    errno = 0;
    void** block = static_cast<void**>(taken.blocks % 3 ? malloc(bytes) : calloc(1, bytes));
    if (!block) {
      if (errno != ENOMEM) fail("errno is %d where no block of %zu bytes is left", errno, bytes);
      return chain;
    }
    *block = chain;
    chain = block;
    ++taken.blocks;
    taken.bytes += bytes;
  }
}

void give_back(void** chain) {
  while (chain) {
    void** next = static_cast<void**>(*chain);
    free(chain);
    chain = next;
  }
}

// The process itself, its libraries and stacks are part of the limit.
void require_enough(const Taken& taken, size_t bytes, size_t limit_mib, const char* when) {
  const size_t most_of_it = (limit_mib - 30) / 2 << 20;
  if (taken.bytes < most_of_it)
    fail("%s: %zu blocks of %zu bytes, %zu KiB of %zu MiB", when, taken.blocks, bytes, taken.bytes >> 10, limit_mib);
}

void take_twice(size_t bytes, size_t limit_mib) {
  Taken first, second;
  give_back(take_until_refused(bytes, first));
  require_enough(first, bytes, limit_mib, "at first");
  give_back(take_until_refused(bytes, second));
  require_enough(second, bytes, limit_mib, "again");
}

// What is left when nothing more of one size is: smaller ones, a failing realloc, and a realloc that shrinks.
void live_without_memory() {
  Taken taken;
  void** chain = take_until_refused(100000, taken);
  if (!chain) fail("nothing at all");
  errno = 0;
  if (realloc(chain, size_t{1} << 40) || errno != ENOMEM) fail("realloc found memory");
  for (int i = 0; i < 100000; ++i) free(malloc(20));
  void** next = static_cast<void**>(*chain);
  void** smaller = static_cast<void**>(realloc(chain, 50));
  if (!smaller) fail("no realloc to less");
  if (*smaller != next) fail("realloc to less lost its contents");
  give_back(smaller);
}

int run(size_t limit_mib) {
  live_without_memory();
  for (size_t bytes : {size_t{100}, size_t{3000}, size_t{40000}, size_t{1} << 20}) {
    if (limit_mib > 500 && bytes < 3000) continue;  // would touch all of it
    take_twice(bytes, limit_mib);
  }
  take_twice(100000, limit_mib);
  printf("limits: holds\n");
  return 0;
}

// A thread that takes everything, in a process that has just started. When it has given all back another one starts:
// addresses are not the allocator's alone.
int run_in_thread(size_t limit_mib) {
  std::thread([&] {
    take_twice(100000, limit_mib);
    rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) return;
    pthread_t thread;
    const int code = pthread_create(
        &thread, nullptr, [](void* none) { return none; }, nullptr);
    if (code) fail("no thread when everything is given back: %s", strerror(code));
    pthread_join(thread, nullptr);
  }).join();
  printf("limits: holds\n");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return 2;
  const std::string_view which = arguments[1], work = arguments[3];
  const size_t mib = check::argument(count, arguments, 2, 0);
  if (which == "limited") return work == "run" ? run(mib) : run_in_thread(mib);
  const rlimit limit = {mib << 20, mib << 20};
  if (setrlimit(which == "data" ? RLIMIT_DATA : RLIMIT_AS, &limit)) fail("setrlimit: %s", strerror(errno));
  execl("/proc/self/exe", arguments[0], "limited", arguments[2], arguments[3], nullptr);
  fail("exec: %s", strerror(errno));
}
