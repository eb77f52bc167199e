// Buffers as the pool gives and takes them: what the hooks of clCreateBuffer and clReleaseMemObject call.
#pragma once
#include "backends/opencl/buffer_source.hpp"

namespace cistern::opencl {

// As clCreateBuffer: from the pool, unless there is a reason why not (hooks/create.cpp).
cl_mem create_buffer(const BufferSource::Request& wanted, void* host_pointer, cl_int* errcode);
// As clReleaseMemObject, of any memory object: the last release gives to the pool what it may keep (hooks/release.cpp).
cl_int release_memory(cl_mem memory);

}  // namespace cistern::opencl
