/* loader PLUGIN OTHER: loads both, takes and gives memory in either, in threads too, and unloads them while blocks are
   alive. Prints whether each knows the other's blocks, and which of them is still mapped at the end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REFUSED = 1 }; /* CISTERN_INVALID: this program is not built with the library */

struct plugin {
  void* handle;
  void* (*allocate)(size_t);
  int (*deallocate)(void*);
  unsigned long (*allocations)(void);
};

static struct plugin load(const char* path) {
  struct plugin it = {.handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL)};
  if (!it.handle) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  it.allocate = (void* (*)(size_t))dlsym(it.handle, "plugin_allocate");
  it.deallocate = (int (*)(void*))dlsym(it.handle, "plugin_deallocate");
  it.allocations = (unsigned long (*)(void))dlsym(it.handle, "plugin_allocations");
  return it;
}

static void* work(void* argument) {
  const struct plugin* it = argument;
  for (int round = 0; round < 1000; ++round) {
    char* block = it->allocate(100 + (size_t)round);
    memset(block, round, 100 + (size_t)round);
    if (it->deallocate(block)) abort();
  }
  return NULL;
}

/* A thread that has memory in a plugin's pools, and ends when the plugin was closed. */
static pthread_barrier_t closed;
static void* work_and_wait(void* plugin) {
  work(plugin);
  pthread_barrier_wait(&closed);
  pthread_barrier_wait(&closed);
  return NULL;
}

static int is_mapped(const char* path) { return dlopen(path, RTLD_LAZY | RTLD_NOLOAD) != NULL; }

int main(int count, char** paths) {
  if (count != 3) return 2;
  for (int round = 0; round < 3; ++round) { /* not used: unloaded for good */
    dlclose(load(paths[1]).handle);
    if (is_mapped(paths[1])) return 3;
  }
  struct plugin one = load(paths[1]), other = load(paths[2]);
  char *ours = one.allocate(1000), *theirs = other.allocate(1000);
  one.deallocate(one.allocate(10)); /* the counts of two instances are never the same */
  strcpy(ours, "ours");
  strcpy(theirs, "theirs");
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, work, i % 2 ? &one : &other);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  const unsigned long counted = one.allocations() + other.allocations();
  const int is_shared = one.allocations() == other.allocations();
  const int wrong = is_shared ? REFUSED : one.deallocate(theirs);
  pthread_t late;
  pthread_barrier_init(&closed, NULL, 2);
  pthread_create(&late, NULL, work_and_wait, &one);
  pthread_barrier_wait(&closed);
  dlclose(one.handle);
  dlclose(other.handle);
  pthread_barrier_wait(&closed);
  pthread_join(late, NULL);
  const int kept = is_mapped(paths[1]);
  if (strcmp(ours, "ours") || strcmp(theirs, "theirs")) return 4;
  struct plugin again = load(paths[1]);
  if (again.deallocate(ours)) return 5;
  printf("%s, %s, %s, %s\n", is_shared ? "one instance" : "two instances", wrong == REFUSED ? "told" : "not told",
         kept ? "kept mapped" : "unmapped", counted >= 4002 ? "counted" : "not counted");
  return 0;
}
