// Look-ups where the C library is older than 2.34, whose dlsym and dlopen are in a library of its own, libdl, and the
// process has not loaded that. Then no code in it but ours can have asked for anything by name. The tables of the
// objects that it started with are read instead. Once libdl is there (a plugin has brought it) its functions serve.
#pragma once

namespace cistern {

// The function of that name in a C library's own part that came late ("libdl.so", "libpthread.so"); null: it has not
// come. Takes the lock of the loader's list.
void* find_in_late_library(const char* library, const char* name);

// As dlsym does it, but that it leaves no message: with RTLD_NEXT, RTLD_DEFAULT or what open_without_libdl gave.
void* look_up_without_libdl(void* handle, const char* name);
void* open_without_libdl(const char* file, int mode);
int close_without_libdl(void* handle);

}  // namespace cistern
