// Frames that say nothing to the reader of a report, and where a program's stack ends and the CUDA runtime's begins.
// Reports name the program's function that called
// cudaMalloc; a runtime linked statically has no module of its own that the capture could leave out.
#pragma once
#include "stats/snapshot.hpp"

namespace cistern {

// Drops the leading frames that are the CUDA runtime's or driver's: everything up to the runtime's own entry point
// ("cudaMalloc", and its wrappers in the runtime's header). Frames must have their names (symbolise). Never drops all
// frames, and none behind the first that is certainly the program's, whatever the functions there are called.
void cut_runtime_frames(Vector<FrameFigures>& frames);

// Drops the frames of the C++ library, and of Rust's, between a function and what calls it through a thread, a closure
// or std::invoke; never the first frame. And of those that it takes from an allocation to its caller, all but the last.
void cut_call_wrappers(Vector<FrameFigures>& frames);

}  // namespace cistern
