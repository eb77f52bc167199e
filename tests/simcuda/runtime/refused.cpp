// Everything else that NVIDIA's runtime 13.0 exports: it can be linked, and says what it is when it is called. The
// public headers are left out, because the functions are defined here without their parameters.
#include <stdio.h>

#include <atomic>

namespace simcuda_runtime {

constexpr int kNotSupported = 801;  // cudaErrorNotSupported, checked in state.cpp
int record_refusal(int error);      // becomes the last error; state.cpp

}  // namespace simcuda_runtime

#define REFUSED(name)                                                                   \
  extern "C" int name() {                                                               \
    static std::atomic<bool> said{false};                                               \
    if (!said.exchange(true)) fprintf(stderr, "simcuda: " #name " is not simulated\n"); \
    return simcuda_runtime::record_refusal(simcuda_runtime::kNotSupported);             \
  }
#include "refused.def"
#undef REFUSED
