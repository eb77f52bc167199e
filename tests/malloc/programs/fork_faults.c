// How many page faults a fork costs the parent, and how many the child has until it ends: the least of several forks.
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static long faults_of(int who) {
  struct rusage usage;
  getrusage(who, &usage);
  return usage.ru_minflt;
}

int main(void) {
  char* volatile block = malloc(1000);
  *block = 1;
  long parent = 1000000, child = 1000000;
  for (int i = 0; i < 20; ++i) {
    const long parents_before = faults_of(RUSAGE_SELF), childrens_before = faults_of(RUSAGE_CHILDREN);
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    int status = 1;
    if (waitpid(pid, &status, 0) != pid || status != 0) return 1;
    const long parents = faults_of(RUSAGE_SELF) - parents_before,
               childrens = faults_of(RUSAGE_CHILDREN) - childrens_before;
    if (parents < parent) parent = parents;
    if (childrens < child) child = childrens;
  }
  printf("%ld %ld\n", parent, child);
  return 0;
}
