// old_system SECONDS PLUGIN PLUGIN THREADED: threads allocate and throw while others open and close plugins, walk the
// list of objects and allocate meanwhile, and fork. Prints what was done; a block that a plugin allocated is lost.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>

namespace {

char** plugins;
std::atomic<bool> over{false};
std::atomic<long> allocated{0}, opened{0}, walked{0}, thrown{0}, forked{0}, failed{0};

__attribute__((noinline)) void throw_here(int depth) {
  if (depth == 0) throw std::runtime_error("here");
  char* volatile block = static_cast<char*>(malloc(static_cast<std::size_t>(depth) * 40));
  struct Guard {
    char* block;
    ~Guard() { free(block); }
  } guard{block};
  throw_here(depth - 1);
}

void catch_one(int depth) {
  try {
    throw_here(depth);
  } catch (const std::runtime_error& error) {
    failed += strcmp(error.what(), "here") != 0;
    ++thrown;
  }
}

void* allocates(void*) {
  for (unsigned i = 1; !over; i = i * 1103515245 + 12345) {
    char* volatile block = static_cast<char*>(malloc(i % 5000 + 1));
    memset(block, 1, i % 5000 + 1);
    free(block);
    if (i % 64 == 1) catch_one(static_cast<int>(i >> 8) % 8);
    ++allocated;
  }
  return nullptr;
}

void* opens(void* first) {
  for (int i = 0; !over; ++i) {
    void* const plugin = dlopen(first ? plugins[i % 8 == 7 ? 2 : 0] : plugins[1], RTLD_NOW);
    if (!plugin) {
      ++failed;
      continue;
    }
    const auto allocate = reinterpret_cast<void* (*)(std::size_t)>(dlsym(plugin, "plugin_allocates"));
    const auto throws = reinterpret_cast<void (*)(int)>(dlsym(plugin, "plugin_throws"));
    for (std::size_t bytes = 16; bytes < 4096; bytes *= 2) free(allocate(bytes));
    try {
      throws(1);
      ++failed;
    } catch (const std::runtime_error& error) {
      failed += strcmp(error.what(), "plugin") != 0;
    }
    if (dlclose(plugin) != 0) ++failed;
    ++opened;
  }
  return nullptr;
}

void* walks(void*) {
  const auto visit = [](dl_phdr_info*, std::size_t, void*) {
    void* volatile block = malloc(100);
    free(block);
    return 0;
  };
  while (!over) {
    dl_iterate_phdr(visit, nullptr);
    ++walked;
    usleep(200);
  }
  return nullptr;
}

// The child throws nothing: with old C libraries an exception takes a lock that another thread may have held.
void fork_once() {
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 1; i < 50; ++i) free(malloc(static_cast<std::size_t>(i) * 100));
    _exit(7);
  }
  int status = 0;
  failed += child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7;
  ++forked;
}

}  // namespace

int main(int, char** arguments) {
  plugins = arguments + 2;
  pthread_t threads[6];
  void* (*const bodies[6])(void*) = {allocates, allocates, opens, opens, walks, allocates};
  for (int i = 0; i < 6; ++i) pthread_create(&threads[i], nullptr, bodies[i], i == 2 ? arguments : nullptr);
  for (const time_t end = time(nullptr) + atoi(arguments[1]); time(nullptr) < end;) {
    fork_once();
    usleep(5000);
  }
  over = true;
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
  void* const plugin = dlopen(plugins[0], RTLD_NOW);
  reinterpret_cast<void* (*)()>(dlsym(plugin, "leaked_in_plugin"))();
  printf("allocated %d opened %d walked %d thrown %d forked %d failed %ld\n", allocated > 1000, opened > 3, walked > 3,
         thrown > 3, forked > 3, failed.load());
  return failed != 0;
}
