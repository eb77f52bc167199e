// Asks for parts of larger pages, and for whole ones: what page_size_tests.py tries larger_pages.cpp with.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

static void say(const char* name, int failed) {
  if (failed) perror(name);
}

int main(void) {
  const size_t page = getauxval(AT_PAGESZ);
  char* const memory = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  printf("pages of %zu, first %zu bytes behind one\n", page, (size_t)memory % page);
  fflush(stdout);
  unsigned char resident[3] = {7, 7, 7};
  for (char* at = memory; at <= memory + page / 2; at += page / 2) {
    say("madvise", madvise(at, page, MADV_DONTNEED) != 0);
    say("mprotect", mprotect(at, page, PROT_READ | PROT_WRITE) != 0);
    say("mincore", mincore(at, 2 * page, resident) != 0);
    say("mremap", mremap(at, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, memory + 2 * page) == MAP_FAILED);
    say("munmap", munmap(at, page) != 0);
  }
  printf("resident: %d %d %d\n", resident[0], resident[1], resident[2]);
  return 0;
}
