// What is done to each driver call: one function per CUDA_DRIVER row of symbols/cuda.def, in allocate.cpp and free.cpp
// (device and pinned memory), track.cpp (all other memory), query.cpp (answers that show what the pool holds),
// cuda/free_memory.cpp (cuMemGetInfo), context.cpp (contexts, streams, captures), make_room.cpp (what takes device
// memory besides) and command.cpp (launches and copies).
//
// Room: CUDA: one function per call.
// May include: stats, backends/cuda, shim/process, shim/cuda.
#pragma once
#include "backends/cuda/api.hpp"

namespace cistern::cuda::hook {

#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) CUresult name parameters;
#include "shim/symbols/cuda.def"

}  // namespace cistern::cuda::hook
