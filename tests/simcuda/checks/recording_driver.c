// A libcuda.so.1 that has nothing but the query, and prints each row that it is asked for as driver-lookups.txt has it.
// The query is given out as itself, so that the rows asked through that pointer are seen too, marked by the column.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int record(const char* name, void** function, int version, uint64_t flags, int* status, const char* through);

static int query_given_out(const char* name, void** function, int version, uint64_t flags, int* status) {
  return record(name, function, version, flags, status, "through itself");
}

static int record(const char* name, void** function, int version, uint64_t flags, int* status, const char* through) {
  printf("%s v=%d f=%llu\n", name, version, (unsigned long long)flags);
  fprintf(stderr, "%s: %s\n", name, through);
  *function = NULL;
  if (strcmp(name, "cuGetProcAddress") == 0 && version == 12000) *(void**)function = (void*)query_given_out;
  if (status) *status = *function ? 0 : 1;
  return 0;
}

EXPORT int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  return record(name, function, version, flags, status, "exported");
}
