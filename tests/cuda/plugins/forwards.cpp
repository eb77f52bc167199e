// A library that is preloaded beside Cistern and has a function of the driver, which it passes on.
#include <cuda.h>
#include <dlfcn.h>

extern "C" CUresult cuStreamSynchronize(CUstream stream) {
  static const auto next = reinterpret_cast<CUresult (*)(CUstream)>(dlsym(RTLD_NEXT, "cuStreamSynchronize"));
  return next(stream);
}
