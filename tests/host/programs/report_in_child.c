// A child that reports, forked at the moment when another thread had unmapped a library and the C library's list still
// had it: `report_in_child REPORT PLUGIN`. Behind that one in the list is the plugin, which allocates.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void* idle(void* none) {
  pause();
  return none;
}

int main(int count, char** arguments) {
  int (*report)(const char*, int) = (int (*)(const char*, int))dlsym(RTLD_DEFAULT, "cistern_report");
  struct link_map* library = dlopen("librt.so.1", RTLD_NOW);
  pthread_t thread;
  if (count < 3 || !report || !library || !dlopen(arguments[2], RTLD_NOW)) return 3;
  void* volatile kept = malloc(1000);
  if (munmap((void*)library->l_addr, 4096)) return 3;
  pthread_create(&thread, NULL, idle, NULL);
  const pid_t child = fork();
  if (child == 0) _exit(kept ? report(arguments[1], 1) : 4);
  int status = 0;
  waitpid(child, &status, 0);
  printf("%s %d\n", WIFSIGNALED(status) ? "signal" : "status",
         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  fflush(stdout);
  _exit(0);  // the library that is half there is nobody's to finish
}
