/* leaker WAY CODE BYTES...: leaks an OpenCL buffer of so many bytes each, leaves more in stdout than a pipe holds, and
   ends by WAY with CODE. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../support/asleep.h"

__attribute__((noinline)) static void leak_known(cl_context context, size_t bytes) {
  clCreateBuffer(context, 0, bytes, NULL, NULL);
}

__attribute__((noinline)) static void leak_unknown(cl_context context, size_t bytes) {
  clCreateBuffer(context, 0, bytes, NULL, NULL);
}

static volatile int reader;
static void* read_for_ever(void* unused) {
  int ends[2];
  char byte;
  FILE* file;
  if (pipe(ends) || !(file = fdopen(ends[0], "r"))) return unused;
  reader = gettid();
  while (fread(&byte, 1, 1, file) != 1) {
  }
  return unused;
}

static void** much; /* to look through when exit begins */

static void have_much(void) {
  for (int i = 0; i < 500000; ++i) {
    void** const block = malloc(64);
    *block = much;
    much = block;
  }
}

static atomic_int leaving;

static void* exit_here(void* code) {
  leaving = 1;
  exit((int)(size_t)code);
  return NULL;
}

static void exit_in_handler(void) { exit(9); }

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* way = argv[1];
  const int code = atoi(argv[2]);
  cl_platform_id platform;
  cl_device_id device;
  if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) return 2;
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
  for (int i = 3; i < argc; ++i) (i % 2 ? leak_known : leak_unknown)(context, strtoul(argv[i], NULL, 0));
  clReleaseContext(context);
  setvbuf(stdout, NULL, _IOFBF, 1 << 20);
  for (int i = 0; i < 20000; ++i) printf("%d\n", i);
  if (!strcmp(way, "exit")) exit(code);
  if (!strcmp(way, "_exit")) fflush(stdout), _exit(code);
  if (!strcmp(way, "quick_exit")) fflush(stdout), quick_exit(code);
  if (!strcmp(way, "errx")) errx(code, "as asked");
  if (!strcmp(way, "handler")) atexit(exit_in_handler);
  if (!strcmp(way, "beside_reader")) {
    pthread_t thread;
    pthread_create(&thread, NULL, read_for_ever, NULL);
    while (!reader) usleep(1000);
    wait_until_asleep(getpid(), reader);
  }
  if (!strncmp(way, "beside_", 7) && strcmp(way, "beside_reader")) {
    pthread_t thread;
    have_much();
    pthread_create(&thread, NULL, exit_here, (void*)(size_t)code);
    while (!leaving) usleep(1000);
    usleep(30000); /* for the plain program more than enough to end */
    if (!strcmp(way, "beside_exit")) exit(7);
    if (!strcmp(way, "beside__exit")) _exit(7);
    return 7;
  }
  if (!strcmp(way, "fork")) {
    const pid_t child = fork();
    if (!child) {
      clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
      fflush(stdout);
    }
  }
  return code;
}
