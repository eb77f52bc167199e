/* grower KIND SHAPE MILLISECONDS: keeps as much memory alive as the shape says, for so long; prints the shape's rate
   in bytes a second, and for which part of the time it was held up at most. What is kept is freed at the end where
   SHAPE ends in "-freed". */
#define _GNU_SOURCE
#ifdef WITH_CUDA
#include <cuda_runtime_api.h>
#else
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS_MAX 100000
static void* blocks[BLOCKS_MAX];
static unsigned count;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

#ifdef WITH_CUDA
static void start(void) {}
static void* make_on_device(size_t bytes) {
  void* block = NULL;
  if (cudaMalloc(&block, bytes) != cudaSuccess) abort();
  return block;
}
static void unmake_on_device(void* block) { cudaFree(block); }
#else
static cl_context context;
static void start(void) {
  cl_platform_id platform;
  cl_device_id device;
  if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) abort();
  context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
}
static void* make_on_device(size_t bytes) {
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, NULL);
  if (!buffer) abort();
  return buffer;
}
static void unmake_on_device(void* block) { clReleaseMemObject(block); }
#endif

__attribute__((noinline)) static void* make(int on_host, size_t bytes) {
  return on_host ? malloc(bytes) : make_on_device(bytes);
}

static void unmake(int on_host, void* block) { on_host ? free(block) : unmake_on_device(block); }

/* At another place than they were made. */
__attribute__((noinline)) static void replace(int on_host, size_t bytes, unsigned index) {
  unmake(on_host, blocks[index]);
  blocks[index] = on_host ? malloc(bytes) : make_on_device(bytes);
}

/* In blocks, at a moment from 0 to 1. */
static double level(const char* shape, double at, unsigned turn) {
  const double blocks_at_end = 400;
  if (!strncmp(shape, "linear", 6)) return 20 + blocks_at_end * at;
  if (!strncmp(shape, "steps", 5)) return 20 + blocks_at_end / 10 * floor(at * 10);
  if (!strncmp(shape, "bounded", 7)) return fmin(blocks_at_end * 2 * at, blocks_at_end);
  if (!strncmp(shape, "warm-up", 7)) return fmin(blocks_at_end * 10 * at, blocks_at_end);
  if (!strncmp(shape, "late", 4)) return 100 + (at > 0.5 ? blocks_at_end * (at - 0.5) : 0);
  if (!strncmp(shape, "busy", 4)) return 20 + (turn * 7919) % 50;
  if (!strncmp(shape, "once", 4)) return 50;
  if (!strncmp(shape, "moved", 5)) return blocks_at_end;
  abort();
}

int main(int argument_count, char** arguments) {
  if (argument_count != 4) return 2;
  const int on_host = !strcmp(arguments[1], "host");
  const char* shape = arguments[2];
  const double length = atof(arguments[3]) / 1e3;
  /* Of the host a sample for sure. */
  const size_t bytes = on_host ? 600 << 10 : 64 << 10;
  if (!on_host) start();
  const double began = now();
  double at, before = began, longest = 0;
  unsigned replaced = 0;
  for (unsigned turn = 0; (at = (now() - began) / length) < 1; ++turn) {
    const unsigned wanted = (unsigned)level(shape, at, turn);
    while (count < wanted) blocks[count++] = make(on_host, bytes);
    while (count > wanted) unmake(on_host, blocks[--count]);
    for (; !strncmp(shape, "moved", 5) && replaced < (unsigned)(at * wanted); ++replaced)
      replace(on_host, bytes, replaced);
    usleep(2000);
    longest = fmax(longest, now() - before);
    before = now();
  }
  printf("%.1f %.3f\n", 400.0 * (double)bytes / length, longest / length);
  fflush(stdout);
  while (strstr(shape, "-freed") && count) unmake(on_host, blocks[--count]);
  return 0;
}
