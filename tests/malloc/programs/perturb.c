// What fresh blocks hold when M_PERTURB was asked for: by the environment, or, with an argument, by mallopt after
// others were allocated. Freed ones are filled as well, so the same block twice tells.
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show(const char* whose, size_t bytes) {
  unsigned char* block = malloc(bytes);
  int same = 1;
  for (size_t i = 0; i < bytes; ++i) same &= block[i] == block[bytes - 1];
  printf("%s malloc(%zu): all %d, last byte %02x\n", whose, bytes, same, block[bytes - 1]);
  memset(block, 0x11, bytes);
  unsigned char* cleared = calloc(bytes, 1);
  printf("%s calloc(%zu): last byte %02x\n", whose, bytes, cleared[bytes - 1]);
  cleared = realloc(cleared, 2 * bytes);
  printf("%s realloc(%zu): %02x\n", whose, bytes, cleared[bytes - 1]);
  free(cleared);
  free(block);
}

static void* in_thread(void* unused) {
  (void)unused;
  show("thread", 2000);
  show("thread", 100000);
  return NULL;
}

int main(int count, char** arguments) {
  setvbuf(stdout, NULL, _IONBF, 0);
  void* before[3] = {malloc(2000), malloc(40000), malloc(300000)};
  if (count > 1) printf("mallopt: %d\n", mallopt(M_PERTURB, atoi(arguments[1])));
  show("main", 2000);
  show("main", 40000);
  show("main", 300000);
  for (int i = 0; i < 3; ++i) free(before[i]);
  pthread_t thread;
  pthread_create(&thread, NULL, in_thread, NULL);
  pthread_join(thread, NULL);
  return 0;
}
