// The cases of runtime_native.cpp: in the program, and in a plugin with a copy of the library of its own.
#pragma once

// Prints what failed, or "all right"; the exit code.
extern "C" [[gnu::visibility("default")]] int run_runtime_native(const char* name);
