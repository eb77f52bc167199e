// dlsym as programs use it, through both versions of the symbol that programs are bound to. Everything printed is the
// same for a plain process; "loader" says whether the program sees libOpenCL or something in front of it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
extern void* old_dlsym(void* handle, const char* name);
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
#else
#define old_dlsym dlsym
#endif

static void failing(const char* what, void* handle, const char* name) {
  dlerror();
  void* found = dlsym(handle, name);
  const char* reason = dlerror();
  const char* symbol = reason ? strstr(reason, "undefined symbol") : NULL;
  printf("%s: %s, %s, then %s\n", what, found ? "found" : "null", symbol ? symbol : "no reason",
         dlerror() ? "a second reason" : "none");
}

static void whole_reason(void* handle, const char* name) {
  dlerror();
  printf("%s: ", dlsym(handle, name) ? "found" : "null");
  const char* reason = dlerror();
  printf("%s\n", reason ? reason : "no reason");
}

int main(int count, char** arguments) {
  const char* opencl = count > 1 ? arguments[1] : "libOpenCL.so.1";
  void* math = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  void* program = dlopen(NULL, RTLD_NOW);
  printf("the same function by both versions: %d\n", dlsym(math, "cos") == old_dlsym(math, "cos"));
  printf("puts by default order: %d\n", dlsym(RTLD_DEFAULT, "puts") != NULL && old_dlsym(RTLD_NEXT, "puts") != NULL);
  whole_reason(math, "no_such_function");
  whole_reason(RTLD_DEFAULT, "no_such_function");
  whole_reason(RTLD_NEXT, "no_such_function");
  whole_reason(math, "clCreateBuffer");
  // Nobody provides OpenCL yet, whatever is preloaded.
  failing("default", RTLD_DEFAULT, "clCreateBuffer");
  failing("next", RTLD_NEXT, "clCreateBuffer");
  failing("program", program, "clCreateBuffer");
  void* loader = dlopen(opencl, RTLD_NOW | RTLD_LOCAL);
  if (!loader) return puts("no OpenCL here"), 0;
  printf("by handle: %d %d\n", dlsym(loader, "clCreateBuffer") != NULL,
         old_dlsym(loader, "clReleaseMemObject") != NULL);
  whole_reason(loader, "clNoSuchFunction");
  failing("default, loaded privately", RTLD_DEFAULT, "clCreateBuffer");
  dlerror();
  printf("a success leaves %s\n", dlsym(loader, "clCreateBuffer") && !dlerror() ? "no reason" : "a reason");
  int (*platforms)(unsigned, void*, unsigned*) = (int (*)(unsigned, void*, unsigned*))dlsym(loader, "clGetPlatformIDs");
  printf("not interposed: %d\n", platforms != NULL);
  if (count > 2) {  // where the answers come from; differs between plain and preloaded
    Dl_info info;
    dladdr(dlsym(loader, "clCreateBuffer"), &info);
    fprintf(stderr, "clCreateBuffer in %s\n", strrchr(info.dli_fname, '/') + 1);
    dladdr(dlsym(loader, "clGetPlatformIDs"), &info);
    fprintf(stderr, "clGetPlatformIDs in %s\n", strrchr(info.dli_fname, '/') + 1);
  }
  return 0;
}
