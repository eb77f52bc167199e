// Frees of what is not to be freed: one line that names the pointer and what is known of it, then the end of the
// process, as the C library does, or not (CISTERN_HOST_MISUSE).
#pragma once

namespace cistern::host {

void report_double_free(const char* api, const void* block);
void report_invalid_free(const char* api, const void* pointer);

// Whether a pointer that the pool does not know can be one of the C library's heap: that one was used, and the memory
// is there.
bool c_library_may_own(const void* pointer);

}  // namespace cistern::host
