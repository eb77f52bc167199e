// Opens libraries in every way and hands blocks to and fro. argv: what to do, and the plugin's path.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void* caller_open(const char* name, int mode);

const char* clash(void) { return "program"; }

static void require(int holds, const char* what) {
  if (holds) return;
  printf("broken: %s\n", what);
  exit(1);
}

static void* find(void* library, const char* name) {
  void* found = dlsym(library, name);
  require(found != NULL, name);
  return found;
}

static void hand_over(void* plugin) {
  char* (*copy)(const char*) = find(plugin, "plugin_copy");
  char* (*early)(void) = find(plugin, "plugin_early");
  void (*its_free)(void*) = find(plugin, "plugin_free");
  void* (*its_resize)(void*, size_t) = find(plugin, "plugin_resize");
  its_free(strdup("from here"));
  free(copy("from there"));
  char* block = its_resize(strdup("from here"), 5000);
  require(strcmp(block, "from here") == 0, "contents");
  block = realloc(block, 100000);
  its_free(its_resize(block, 10));
  free(early());
}

static void open_and_hand_over(const char* path, int mode) {
  void* plugin = dlopen(path, mode);
  if (!plugin) printf("%s\n", dlerror());
  require(plugin != NULL, "open");
  const char* (*its_clash)(void) = find(plugin, "plugin_clash");
  printf("the plugin finds the %s's\n", its_clash());
  hand_over(plugin);
}

static void say_errors(void) {
  struct {
    const char* file;
    int mode;
  } calls[] = {{"libnowhere.so", RTLD_NOW},
               {"libnowhere.so", RTLD_LAZY | RTLD_DEEPBIND},
               {"/etc/passwd", RTLD_NOW},
               {"libc.so.6", 0},
               {"libc.so.6", RTLD_DEEPBIND},
               {"libprivate.so", RTLD_NOW},
               {"", RTLD_NOW}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    errno = 77;
    void* opened = dlopen(calls[i].file, calls[i].mode);
    const char* reason = dlerror();
    printf("%s: %s, %s\n", calls[i].file, opened ? "opened" : "null", reason ? reason : "no reason");
  }
  require(dlopen(NULL, RTLD_NOW) == dlopen(NULL, RTLD_NOW | RTLD_DEEPBIND), "the program itself");
}

// A namespace has a C library of its own, whose blocks stay there.
static void open_apart(const char* path) {
  void* plugin = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
  if (!plugin) printf("%s\n", dlerror());
  require(plugin != NULL, "dlmopen");
  char* (*copy)(const char*) = find(plugin, "plugin_copy");
  void (*its_free)(void*) = find(plugin, "plugin_free");
  its_free(copy("apart"));
  require(find(plugin, "malloc") != (void*)malloc, "its own malloc");
}

static void look_up_in_the_c_library(void) {
  void* library = dlopen("libc.so.6", RTLD_NOW);
  void (*its_free)(void*) = find(library, "free");
  void* (*its_malloc)(size_t) = find(library, "malloc");
  void* (*its_realloc)(void*, size_t) = find(library, "realloc");
  its_free(strdup("from here"));
  free(its_malloc(10));
  free(its_realloc(malloc(10), 100000));
  require(dlsym(library, "clash") == NULL && dlerror(), "a name that is not there");
}

static pthread_barrier_t together;
static const char* plugin_path;

static void* open_together(void* unused) {
  pthread_barrier_wait(&together);
  for (int i = 0; i < 200; ++i) {
    void* plugin = dlopen(plugin_path, RTLD_NOW | RTLD_DEEPBIND);
    char* (*copy)(const char*) = find(plugin, "plugin_copy");
    void (*its_free)(void*) = find(plugin, "plugin_free");
    its_free(strdup("from here"));
    free(copy("from there"));
    require(dlsym(RTLD_DEFAULT, "strtok_r") && dlsym(RTLD_DEFAULT, "free"), "look-ups beside");
    dlclose(plugin);
  }
  return unused;
}

static void open_in_threads(void) {
  enum { kThreads = 8 };
  pthread_t threads[kThreads];
  pthread_barrier_init(&together, NULL, kThreads);
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, open_together, NULL);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  const char* what = arguments[1];
  plugin_path = arguments[2];
  if (strcmp(what, "deep") == 0) open_and_hand_over(plugin_path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (strcmp(what, "shallow") == 0) open_and_hand_over(plugin_path, RTLD_LAZY | RTLD_LOCAL);
  if (strcmp(what, "errors") == 0) say_errors();
  if (strcmp(what, "apart") == 0) open_apart(plugin_path);
  if (strcmp(what, "c_library") == 0) look_up_in_the_c_library();
  if (strcmp(what, "threads") == 0) open_in_threads();
  if (strcmp(what, "search_path") == 0) {
    require(caller_open("libprivate.so", RTLD_NOW) != NULL, "the caller's search path");
    void* plugin = caller_open("libprivate.so", RTLD_NOW | RTLD_DEEPBIND);
    require(plugin != NULL, "the caller's search path, deep");
    hand_over(plugin);
  }
  printf("opener: %s holds\n", what);
  return 3;
}
