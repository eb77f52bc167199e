// Every function of the C library that gives out a block, takes one or asks about one, handed on to the others: a block
// that reaches an allocator that it is not of ends the process. argv: minimal, for an allocator that brings malloc,
// free, calloc and realloc and no more: the C library's manual asks for those.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char* filled(void* block, size_t bytes) {
  if (!block) exit(4);
  return memset(block, 0x37, bytes);
}

// Checks, moves and frees what was filled with so many bytes.
static void end(char* block, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (block[i] != 0x37) exit(5);
  block = reallocarray(block, bytes + 9, 3);
  for (size_t i = 0; i < bytes; ++i)
    if (block[i] != 0x37) exit(6);
  block = realloc(block, bytes / 2 + 1);
  if (block[bytes / 2] != 0x37) exit(7);
  free(block);
}

static void c_library_functions(void) {
  free(strdup("copied"));
  char *line = NULL, *text = NULL;
  size_t room = 0;
  FILE* file = fopen("/proc/self/status", "r");
  while (getline(&line, &room, file) > 0) continue;
  fclose(file);
  line = reallocarray(line, room, 2);
  free(line);
  if (asprintf(&text, "%0900d", 7) != 900) exit(8);
  free(realloc(text, 2000));
  file = open_memstream(&text, &room);
  for (int i = 0; i < 1000; ++i) fprintf(file, "%d ", i);
  fclose(file);
  free(text);
}

static void the_rest(size_t bytes) {
  void* block = NULL;
  if (posix_memalign(&block, 256, bytes) != 0) exit(9);
  end(filled(block, bytes), bytes);
  end(filled(aligned_alloc(64, (bytes + 63) / 64 * 64), bytes), bytes);
  end(filled(memalign(128, bytes), bytes), bytes);
  end(filled(valloc(bytes), bytes), bytes);
  block = malloc(bytes);
  if (malloc_usable_size(block) < bytes) exit(10);
  end(filled(block, bytes), bytes);
}

int main(int count, char** arguments) {
  const int minimal = count > 1 && strcmp(arguments[1], "minimal") == 0;
  for (size_t bytes = 1; bytes < 300000; bytes = bytes * 3 + 1) {
    end(filled(malloc(bytes), bytes), bytes);
    end(filled(calloc(bytes, 1), bytes), bytes);
    end(filled(realloc(NULL, bytes), bytes), bytes);
    end(filled(reallocarray(NULL, bytes, 1), bytes), bytes);
    if (!minimal) the_rest(bytes);
  }
  c_library_functions();
  malloc_trim(0);
  printf("family: holds\n");
  return 3;
}
