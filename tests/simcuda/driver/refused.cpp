// Every entry point that no other file defines: it says its name once and answers CUDA_ERROR_NOT_SUPPORTED. These are
// weak, so a definition anywhere else takes their place. Without cuda.h: here all functions have one type.
#define SIMCUDA_ENTRY_POINT(base, version, stream, name) \
  __attribute__((weak, visibility("default"))) int name() { return simcuda_refused_entry_point(#name); }

extern "C" {
__attribute__((visibility("hidden"))) int simcuda_refused_entry_point(const char* name);
#include "tests/simcuda/driver/entry_points.def"
}
