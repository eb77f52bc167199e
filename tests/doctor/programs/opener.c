// Opens libraries: opener LIBRARY... ; with RTLD_DEEPBIND those behind "deep".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int count, char** arguments) {
  int mode = RTLD_NOW;
  for (int i = 1; i < count; ++i) {
    if (!strcmp(arguments[i], "deep")) {
      mode |= RTLD_DEEPBIND;
    } else if (!dlopen(arguments[i], mode)) {
      puts(dlerror());
      return 1;
    }
  }
  return 0;
}
