// What is done to each driver call: one function per CUDA_DRIVER row of symbols.def, in cuda_memory_hooks.cpp (device
// and pinned memory), cuda_track_hooks.cpp (all other memory), cuda_query_hooks.cpp (answers that show what the pool
// holds), cuda_free_memory.cpp (cuMemGetInfo), cuda_context_hooks.cpp (contexts, streams, captures),
// cuda_allocate_hooks.cpp (what takes device memory besides) and cuda_command_hooks.cpp (launches and copies).
#pragma once
#include "backends/cuda_api.hpp"

namespace cistern::cuda::hook {

#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) CUresult name parameters;
#include "shim/symbols.def"

}  // namespace cistern::cuda::hook
