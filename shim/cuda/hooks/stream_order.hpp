// Device memory in the order of a stream. A block that went back on a stream is kept under a key of that stream. A
// request on the same stream gets it again and waits for nothing. If there is none under the key, the request takes a
// block that all streams share.
//
// A key needs a name of the stream that no other one has, ever: a handle comes again once its stream was destroyed. So
// only the default stream and streams that were seen when they were made have one.
#pragma once
#include "shim/cuda/state.hpp"

namespace cistern::cuda {

// The traits of what is kept for this stream of the context; 0: it has no name, or is another context's.
std::uint64_t stream_traits(CudaState& s, const Context* context, CUstream stream);

// The stream was destroyed, or never made. No call may name it: drivers follow the handle. (Seen: SIGSEGV in version
// 580.) In a program that links the library this can't be told, and is false.
bool is_gone(CudaState& s, CUstream stream);

// The work of streams that were not seen when they were made (in a program that links the library) has to be asked for
// while the caller names them: an event each. Before a block goes back behind the work of its context.
void note_unseen_work(CudaState& s, const Block& block, CUstream stream);

// The stream is gone: all streams share the blocks that were kept for it, as soon as its last work has ended.
void end_stream_order(CudaState& s, Context& context, std::uint64_t stream_number);

}  // namespace cistern::cuda
