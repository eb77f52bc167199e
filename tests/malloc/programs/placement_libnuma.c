// Stands for libnuma.so.1 on machines that are not there: PLACEMENT_MACHINE is `none` (no NUMA), `two` (nodes 0 and 1)
// or `refusing` (mbind is not permitted). Each call of mbind is one line in the file PLACEMENT_CALLS. It neither
// allocates nor asks the kernel for a policy.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bitmask {
  unsigned long size;
  unsigned long* maskp;
};

static unsigned long words[2] = {3, 0};
static struct bitmask allowed = {128, words};

static int machine_is(const char* name) {
  const char* machine = getenv("PLACEMENT_MACHINE");
  return machine && !strcmp(machine, name);
}

int numa_available(void) { return machine_is("none") ? -1 : 0; }
struct bitmask* numa_get_mems_allowed(void) {
  return &allowed;
}
void numa_bitmask_free(struct bitmask* mask) { (void)mask; }

long mbind(void* memory, unsigned long bytes, int mode, const unsigned long* nodes, unsigned long bits,
           unsigned flags) {
  char line[200];
  unsigned long more = 0;
  for (unsigned long word = 1; word < (bits - 1) / (8 * sizeof(long)); ++word) more |= nodes[word];
  const int length = snprintf(line, sizeof line, "%p %lu mode %d nodes %lx more %lx flags %u\n", memory, bytes, mode,
                              nodes[0], more, flags);
  const char* path = getenv("PLACEMENT_CALLS");
  const int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  if (file < 0 || write(file, line, (size_t)length) != length) abort();
  close(file);
  if (!machine_is("refusing")) return 0;
  errno = EPERM;
  return -1;
}
