// Asks the driver for functions as a runtime does: libcuda.so.1 by dlopen, one dlsym, and from there cuGetProcAddress,
// asked for itself, serves the rest. Reads "name version flags" lines (a name may be empty) and prints one line for
// each.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using LookUp = int (*)(const char*, void**, int, uint64_t, int*);
using LookUpBefore12 = int (*)(const char*, void**, int, uint64_t);

// Library and offset: the same in every run, whatever addresses the libraries get.
void say_pointer(const void* pointer) {
  Dl_info info;
  if (!pointer) {
    printf("null 0");
  } else if (!dladdr(pointer, &info) || !info.dli_fname) {
    printf("unknown 0");
  } else {
    const char* slash = strrchr(info.dli_fname, '/');
    printf("%s %#zx", slash ? slash + 1 : info.dli_fname,
           static_cast<size_t>(static_cast<const char*>(pointer) - static_cast<const char*>(info.dli_fbase)));
  }
}

void ask(LookUp look_up, LookUpBefore12 look_up_before_12, const char* name, int version, uint64_t flags) {
  void* pointer = nullptr;
  int status = -1;
  const int result = look_up(name, &pointer, version, flags, &status);
  printf("%s|%d|%d|%d|%d|", name, version, static_cast<int>(flags), result, status);
  say_pointer(pointer);
  void* without_status = nullptr;
  const int result_without = look_up(name, &without_status, version, flags, nullptr);
  void* before_12 = nullptr;
  const int result_before_12 = look_up_before_12(name, &before_12, version, flags);
  printf("|%d|%s|%d|", result_without, without_status == pointer ? "same" : "different", result_before_12);
  say_pointer(before_12);
  printf("\n");
}

// A driver follows null pointers and the process ends, so such a call is made in a child, whose words are not shown.
template <class Call>
void say_end_of(const char* what, Call call) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    call();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("%s: %s\n", what, WIFSIGNALED(status) ? "ends the process" : "returns");
}

// What only a mistaken program does; the answers are the driver's.
void ask_wrongly(LookUp look_up, LookUpBefore12 look_up_before_12) {
  int status = -1;
  void* pointer = nullptr;
  say_end_of("no name", [&] { look_up(nullptr, &pointer, 12000, 0, &status); });
  say_end_of("nowhere to answer", [&] { look_up("cuMemAlloc", nullptr, 12000, 0, &status); });
  say_end_of("no name before 12", [&] { look_up_before_12(nullptr, &pointer, 12000, 0); });
  say_end_of("nowhere to answer before 12", [&] { look_up_before_12("cuMemAlloc", nullptr, 12000, 0); });
  pointer = &status;
  printf("unknown flags: %d ", look_up("cuMemAlloc", &pointer, 12000, 0x80, &status));
  printf("%s status %d\n", pointer == &status ? "untouched" : pointer ? "set" : "null", status);
}

template <class Function>
bool ask_for_itself(LookUp first, int version, Function& function) {
  void* pointer = nullptr;
  int status = -1;
  if (first("cuGetProcAddress", &pointer, version, 0, &status) != 0 || !pointer) return false;
  memcpy(&function, &pointer, sizeof(function));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver || argc != 2) return fprintf(stderr, "no driver (%s), or no list\n", dlerror()), 2;
  LookUp first = nullptr, look_up = nullptr;
  LookUpBefore12 look_up_before_12 = nullptr;
  void* found = dlsym(driver, "cuGetProcAddress_v2");
  memcpy(&first, &found, sizeof(first));
  if (!first) return fprintf(stderr, "no cuGetProcAddress_v2\n"), 2;
  printf("found by dlsym|");
  say_pointer(found);
  printf("\n");
  if (!ask_for_itself(first, 12000, look_up) || !ask_for_itself(first, 11030, look_up_before_12))
    return fprintf(stderr, "cuGetProcAddress is not found through itself\n"), 2;

  FILE* list = fopen(argv[1], "r");
  if (!list) return fprintf(stderr, "cannot read %s\n", argv[1]), 2;
  char line[512];
  while (fgets(line, sizeof(line), list)) {
    char* name_end = strchr(line, ' ');
    int version = 0, flags = 0;
    if (!name_end || sscanf(name_end, "%d %d", &version, &flags) != 2)
      return fprintf(stderr, "cannot read the line: %s", line), 2;
    *name_end = 0;
    ask(look_up, look_up_before_12, line, version, static_cast<uint64_t>(flags));
  }
  fclose(list);
  ask_wrongly(look_up, look_up_before_12);
  return 0;
}
