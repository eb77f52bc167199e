// A program that links the library and lies idle: it prints how many threads it has, with its pool of host memory full
// of free blocks, and ends.
#include <cistern/cistern.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace {
int count_tasks() {
  struct stat tasks {};
  stat("/proc/self/task", &tasks);
  return static_cast<int>(tasks.st_nlink) - 2;
}
struct PrintsInDestructor {
  ~PrintsInDestructor() { std::printf("destructor %d\n", count_tasks()); }
} prints_in_destructor;
}  // namespace

int main() {
  std::printf("before %d\n", count_tasks());
  cistern_statistics statistics;
  statistics.struct_bytes = sizeof statistics;
  if (cistern_get_statistics(CISTERN_HOST, &statistics) != CISTERN_OK) return 90;
  sleep(1);
  std::printf("idle %d\n", count_tasks());
}
