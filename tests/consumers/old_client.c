/* As a program that was linked with the first library of this interface: it knows the first functions of the table, and
   finds them where that one found them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct first_version {
  uint32_t number, bytes;
  const char* library_version;
  const char* (*version)(void);
  int (*get_statistics)(int, void*);
  int (*trim)(int, size_t, size_t*);
  int (*report)(const char*, int);
  void* (*allocate)(size_t, size_t);
  int (*deallocate)(void*);
};

int main(void) {
  const struct first_version* (*find)(void) =
      (const struct first_version* (*)(void))dlsym(RTLD_DEFAULT, "cistern_interface");
  if (!find) return 2;
  const struct first_version* it = find();
  if (it->number != 2 || it->bytes < sizeof *it) return 3;
  void* block = it->allocate(1000, 4096);
  if (!block || (uintptr_t)block % 4096 || it->deallocate(block)) return 4;
  if (strcmp(it->version(), it->library_version)) return 5;
  puts("understood");
  return 0;
}
