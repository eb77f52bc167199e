// Buffers as the pool gives and takes them: what the hooks of clCreateBuffer and clReleaseMemObject call, and the C
// API. Records and lines about misuse name the OpenCL call either way.
#pragma once
#include "backends/opencl/buffer_source.hpp"

namespace cistern::opencl {

// As clCreateBuffer: from the pool, unless there is a reason why not (hooks/create.cpp).
cl_mem create_buffer(const BufferSource::Request& request, void* host_pointer, cl_int* errcode);
// Makes `count` buffers more for the pool to keep; none of the program's is counted. What the pool does not serve is
// refused: kInvalidOperation.
cl_int reserve_buffers(const BufferSource::Request& request, std::size_t count);
// As clReleaseMemObject, of any memory object: the last release gives to the pool what it may keep (hooks/release.cpp).
cl_int release_memory(cl_mem memory);

// For programs that link the library, whose calls are not intercepted (hooks/object.cpp): a context that is used, and
// forgotten; a queue whose commands up to now may use the buffer.
void make_context_known(cl_context context);
void make_context_unknown(cl_context context);
void note_last_queue(cl_mem buffer, cl_command_queue queue);

}  // namespace cistern::opencl
