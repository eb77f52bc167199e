// Misuse gets one clear line: pointer, kind, and both sites. Never a crash that the real library would not have had.
#pragma once
#include "stats/sites.hpp"

namespace cistern {

// "cistern: clReleaseMemObject(0x...): not a memory object; CL_INVALID_MEM_OBJECT returned"
void report_unknown_handle(const char* api, const void* handle);
// "cistern: clReleaseMemObject(0x...): buffer already released; created at f (file:1), released at g (file:2); ..."
void report_released_handle(const char* api, const void* handle, const char* kind, SiteId created, SiteId released);
// About a kernel's argument, which is passed on; once for each place of release: "cistern: a command uses buffer 0x...
// after its last release, created at f (file:1), ..."
void report_use_after_release(const void* handle, SiteId created, SiteId released);

// "cistern: cudaFree(0x...): device block already freed; allocated at f (file:1), freed at g (file:2);
// CUDA_ERROR_INVALID_VALUE returned"
void report_double_free(const char* api, std::uintptr_t pointer, const char* kind, SiteId allocated, SiteId freed);
struct LifeSites {
  SiteId allocated, freed, used;
};
// Once for each place of use: "cistern: cudaMemcpy(0x...): device block already freed; allocated at f (file:1), freed
// at g (file:2), used at h (file:3); CUDA_ERROR_INVALID_VALUE returned"
void report_use_of_freed(const char* api, std::uintptr_t pointer, const LifeSites& sites);
// The same of a buffer: "cistern: clEnqueueWriteBuffer(0x...): buffer already released, created at f (file:1), ..."
void report_use_of_released(const char* api, const void* handle, const LifeSites& sites);
// "cistern: cudaFree(0x...): not the start of a live allocation; ..."
void report_unknown_pointer(const char* api, std::uintptr_t pointer);

// "cistern: cudaFree(0x...): this is a live pinned block, allocated at f (file:1); the driver returned ..."
void report_wrong_free(const char* api, std::uintptr_t pointer, const char* kind, SiteId allocated);

// Reads the word at `address` without faulting. False: not readable.
bool read_word(const void* address, void** word);

// "load (src/w.cpp:42)", else "module+0x1234".
String describe_frame(const FrameFigures& frame);
// The program's own frame of a site; "" without one.
String describe_site(SiteId site);

}  // namespace cistern
