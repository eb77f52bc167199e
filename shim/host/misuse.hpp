// Frees of what is not to be freed: one line that names the pointer and what is known of it, then the end of the
// process, as the C library does, or not (CISTERN_HOST_MISUSE).
#pragma once

namespace cistern::host {

// What was freed or resized and is no live block. `caller`: where the call returns to.
void report_misuse(const char* api, const void* pointer, const void* caller);
// The same of a call whose result says so as well: the process goes on.
void say_misuse(const char* api, const void* pointer);

}  // namespace cistern::host
