// Those who find malloc in the C library without asking the global order: libraries opened with RTLD_DEEPBIND (PHP's
// modules), and look-ups in the C library's handle (Python's ctypes). Their free gets blocks of the pool.
#pragma once

// The decision behind the exported dlopen (entry_dlopen.S): the mode to open with.
extern "C" [[gnu::visibility("hidden")]] int cistern_dlopen_mode(int mode);

// To be called before `name` is looked up in a handle, or behind another library.
void before_look_up(const char* name);
