// Where its memory lies, as the kernel tells it (placement_tests.py).
//
//   placement MIB [MIB...]    takes blocks of so many MiB, writes to them, and prints where the middle of each is
//   placement move MIB        grows such a block until its pages move, and prints where they went and where they were
//   placement trim MIB        frees such a block, trims, and prints whether that gave it back; takes a zeroed one then
//   placement fork MIB        prints whether a child could write to what it inherited and to memory of its own
//   placement all             prints what is not as usual among all mappings
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMiB = 1 << 20 };

static void print_mapping(const char* name, const void* block) {
  char line[4096], policy[64] = "?";
  unsigned long begin = 0, end = 0, page_kb = 0, huge_kb = 0;
  int found = 0, advised = 0;
  FILE* file = fopen("/proc/self/smaps", "r");
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) {
      if (found) break;
      found = (uintptr_t)block >= begin && (uintptr_t)block < end;
    } else if (found) {
      sscanf(line, "KernelPageSize: %lu", &page_kb);
      sscanf(line, "AnonHugePages: %lu", &huge_kb);
      if (!strncmp(line, "VmFlags:", 8)) {
        advised = strstr(line, " hg") != NULL;
        break;
      }
    }
  }
  fclose(file);
  file = fopen("/proc/self/numa_maps", "r");
  while (file && fgets(line, sizeof line, file)) {
    unsigned long at;
    char word[64];
    if (sscanf(line, "%lx %63s", &at, word) == 2 && at <= (uintptr_t)block) strcpy(policy, word);
  }
  if (file) fclose(file);
  printf("%s policy=%s hg=%d page_kb=%lu huge_kb=%lu\n", name, policy, advised, page_kb, huge_kb);
}

static char* filled(size_t bytes) {
  char* block = malloc(bytes);
  if (!block) exit(3);
  memset(block, 7, bytes);
  return block;
}

static int holds(const char* block, size_t bytes, char value) {
  for (size_t i = 0; i < bytes; i += 512)
    if (block[i] != value) return 0;
  return 1;
}

static void move(size_t bytes) {
  char* block = filled(bytes);
  char* wall = filled(bytes);  // nothing grows in place over it
  char* before = block;
  block = realloc(block, bytes * 4);
  if (!block || !holds(block, bytes, 7) || !holds(wall, bytes, 7)) exit(4);
  printf("%s\n", block == before ? "stayed" : "moved");
  print_mapping("now", block);
  print_mapping("before", before);
  char* again = calloc(1, bytes);
  if (!again || !holds(again, bytes, 0)) exit(5);
  free(again);
  free(wall);
  free(block);
}

// Sizes that end inside a huge page.
static void trim(size_t bytes) {
  free(filled(bytes + 3 * 65536));
  const int given_back = malloc_trim(0);
  for (int i = 0; i < 3; ++i) {
    char* again = calloc(1, bytes + (size_t)i * 65536);
    for (size_t at = 0; at < bytes + (size_t)i * 65536; ++at)
      if (again[at]) exit(6);
    memset(again, 7, bytes + (size_t)i * 65536);
    free(again);
    if (malloc_trim(0) != given_back) exit(7);
  }
  printf("%s\n", given_back ? "given back" : "kept");
}

static void with_child(size_t bytes) {
  char* block = filled(bytes);
  const pid_t child = fork();
  if (child == 0) {
    memset(block, 9, bytes);
    char* own = filled(bytes);
    _exit(holds(block, bytes, 9) && holds(own, bytes, 7) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  printf("child %d, parent's %s\n", status, holds(block, bytes, 7) ? "unchanged" : "changed");
  free(block);
}

static void print_unusual(void) {
  char* block = filled(64 * kMiB);
  char line[4096], word[64];
  int policies = 0, advised = 0, mappings = 0, libnuma = 0;
  unsigned long at;
  FILE* file = fopen("/proc/self/numa_maps", "r");
  while (file && fgets(line, sizeof line, file))
    policies += sscanf(line, "%lx %63s", &at, word) == 2 && strcmp(word, "default") != 0;
  if (file) fclose(file);
  file = fopen("/proc/self/smaps", "r");
  while (fgets(line, sizeof line, file)) {
    libnuma += strstr(line, "libnuma.so") != NULL;
    if (strncmp(line, "VmFlags:", 8) != 0) continue;
    ++mappings;
    advised += strstr(line, " hg") || strstr(line, " ht");
  }
  fclose(file);
  printf("%d with a policy, %d with huge pages, %d of libnuma, %s\n", policies, advised, libnuma,
         mappings > 5 ? "of all" : "not all seen");
  free(block);
}

int main(int count, char** arguments) {
  if (count == 2 && !strcmp(arguments[1], "all")) {
    print_unusual();
  } else if (count == 3 && !strcmp(arguments[1], "move")) {
    move(strtoul(arguments[2], NULL, 10) * kMiB);
  } else if (count == 3 && !strcmp(arguments[1], "trim")) {
    trim(strtoul(arguments[2], NULL, 10) * kMiB);
  } else if (count == 3 && !strcmp(arguments[1], "fork")) {
    with_child(strtoul(arguments[2], NULL, 10) * kMiB);
  } else {
    for (int i = 1; i < count; ++i) {
      const size_t bytes = strtoul(arguments[i], NULL, 10) * kMiB;
      print_mapping(arguments[i], filled(bytes) + bytes / 2);
    }
  }
  return 0;
}
