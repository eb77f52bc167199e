// The files of this folder are compiled twice: as they are, and with CUDA_API_PER_THREAD_DEFAULT_STREAM, by which the
// public header renames each function to its _ptds or _ptsz twin [documented]. The twins ask the driver for the
// function of the per-thread default stream: a look-up of its own, with a version of its own [measured].
#pragma once
#include "../state.hpp"

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define DRIVER_ON_STREAM(name, legacy_version, per_thread_version) \
  ::simcuda_runtime::driver_call<PFN_##name##_v##legacy_version>(  \
      ::simcuda_runtime::lookup_index(#name, per_thread_version, ::simcuda_runtime::kPerThreadStream))
#else
#define DRIVER_ON_STREAM(name, legacy_version, per_thread_version) \
  ::simcuda_runtime::driver_call<PFN_##name##_v##legacy_version>(  \
      ::simcuda_runtime::lookup_index(#name, legacy_version, ::simcuda_runtime::kAnyStream))
#endif
