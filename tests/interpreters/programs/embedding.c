/* embedding LIBRARY CODE [LIBRARY CODE]...: runs code in interpreters that are loaded late, in a name space of their
   own each; "-" as code: the interpreter ends, and its library is closed. */
#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* find(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (!symbol) fprintf(stderr, "no %s\n", name), exit(2);
  return symbol;
}

int main(int count, char** arguments) {
  for (int i = 1; i + 1 < count; i += 2) {
    void* library = dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
    if (!strcmp(arguments[i + 1], "-")) {
      ((int (*)(void))find(library, "Py_FinalizeEx"))();
      dlclose(library);
      dlclose(library);
      continue;
    }
    /* Others than the system's would look for their modules where its are. */
    char home[4096] = {0};
    strncpy(home, arguments[i], sizeof home - 1);
    if (strncmp(home, "/usr/lib/", 9))
      setenv("PYTHONHOME", dirname(dirname(home)), 1);
    else
      unsetenv("PYTHONHOME");
    ((void (*)(int))find(library, "Py_InitializeEx"))(0);
    if (((int (*)(const char*))find(library, "PyRun_SimpleString"))(arguments[i + 1])) return 1;
  }
  return 0;
}
