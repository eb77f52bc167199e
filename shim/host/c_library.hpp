// Which pointers can be blocks of the C library's own heap: a plugin that was opened with RTLD_DEEPBIND gets its memory
// there, and the program frees it here.
#pragma once

namespace cistern::host {

// Before the C library's heap is used.
void note_program_break();

// Whether a pointer that the pool does not know can be a block of the C library. Rather yes: that one judges then.
bool c_library_may_own(const void* pointer);

// False: there is no memory. Where the system does not say, there is some.
bool is_mapped(const void* pointer);

}  // namespace cistern::host
