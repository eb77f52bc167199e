// The hooks of CUDA's driver: one function per CUDA_DRIVER row of symbols/cuda.def.
//
//   allocate.cpp, free.cpp  device and pinned memory
//   track.cpp               all other memory
//   graph.cpp               graphs and their nodes
//   query.cpp               answers that show the memory of the pools; look-ups
//   context.cpp             contexts, streams, captures
//   make_room.cpp           other calls that take device memory
//   command.cpp             launches
//   host_function.cpp       functions that streams run
//   copy.cpp                copies
//   gathering.cpp           all of them, where copies may be held back; unhooked.cpp: functions that have no hook
//
// Room: CUDA: one function per call.
// May include: pool/base, stats, backends/cuda, shim/process, shim/staging, shim/cuda.
#pragma once
#include "backends/cuda/api.hpp"

namespace cistern::cuda::hook {

#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) CUresult name parameters;
#include "shim/symbols/cuda.def"

}  // namespace cistern::cuda::hook
