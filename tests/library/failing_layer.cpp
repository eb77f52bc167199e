// An OpenCL layer below the library: to it, part of the driver. Of the calls that make, release, fill, copy and order
// buffers every n-th fails, as asked for by failing_layer_every().
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>

#include <atomic>

#include "tests/support/layer.hpp"

namespace {

cl_icd_dispatch below, ours;
std::atomic<unsigned> every{0}, calls{0};

bool fails() {
  const unsigned n = every;
  return n && ++calls % n == 0;
}

cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t bytes, void* host, cl_int* error) {
  if (!fails()) return below.clCreateBuffer(context, flags, bytes, host, error);
  if (error) *error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return nullptr;
}

cl_int CL_API_CALL release(cl_mem memory) { return fails() ? CL_OUT_OF_HOST_MEMORY : below.clReleaseMemObject(memory); }

cl_int CL_API_CALL copy_buffer(cl_command_queue queue, cl_mem source, cl_mem target, size_t from, size_t to,
                               size_t bytes, cl_uint count, const cl_event* list, cl_event* event) {
  if (fails()) return CL_OUT_OF_RESOURCES;
  return below.clEnqueueCopyBuffer(queue, source, target, from, to, bytes, count, list, event);
}

cl_int CL_API_CALL write(cl_command_queue queue, cl_mem target, cl_bool blocking, size_t to, size_t bytes,
                         const void* source, cl_uint count, const cl_event* list, cl_event* event) {
  if (fails()) return CL_OUT_OF_RESOURCES;
  return below.clEnqueueWriteBuffer(queue, target, blocking, to, bytes, source, count, list, event);
}

cl_int CL_API_CALL read(cl_command_queue queue, cl_mem source, cl_bool blocking, size_t from, size_t bytes,
                        void* target, cl_uint count, const cl_event* list, cl_event* event) {
  if (fails()) return CL_OUT_OF_RESOURCES;
  return below.clEnqueueReadBuffer(queue, source, blocking, from, bytes, target, count, list, event);
}

cl_int CL_API_CALL fill(cl_command_queue queue, cl_mem target, const void* pattern, size_t pattern_bytes, size_t to,
                        size_t bytes, cl_uint count, const cl_event* list, cl_event* event) {
  if (fails()) return CL_OUT_OF_RESOURCES;
  return below.clEnqueueFillBuffer(queue, target, pattern, pattern_bytes, to, bytes, count, list, event);
}

cl_int CL_API_CALL marker(cl_command_queue queue, cl_uint count, const cl_event* list, cl_event* event) {
  return fails() ? CL_OUT_OF_RESOURCES : below.clEnqueueMarkerWithWaitList(queue, count, list, event);
}

cl_int CL_API_CALL barrier(cl_command_queue queue, cl_uint count, const cl_event* list, cl_event* event) {
  return fails() ? CL_OUT_OF_RESOURCES : below.clEnqueueBarrierWithWaitList(queue, count, list, event);
}

cl_int CL_API_CALL finish(cl_command_queue queue) { return fails() ? CL_OUT_OF_RESOURCES : below.clFinish(queue); }

}  // namespace

extern "C" void failing_layer_every(unsigned n) {
  calls = 0;
  every = n;
}

extern "C" cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t bytes, void* value, size_t* bytes_ret) {
  return cistern::test::layer_info("failing", name, bytes, value, bytes_ret);
}

extern "C" cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch* target, cl_uint* count_ret,
                                          const cl_icd_dispatch** layer) {
  if (!cistern::test::begin_layer(count, target, count_ret, layer, below, ours)) return CL_INVALID_VALUE;
  ours.clCreateBuffer = create_buffer;
  ours.clReleaseMemObject = release;
  ours.clEnqueueCopyBuffer = copy_buffer;
  ours.clEnqueueWriteBuffer = write;
  ours.clEnqueueReadBuffer = read;
  ours.clEnqueueFillBuffer = fill;
  ours.clEnqueueMarkerWithWaitList = marker;
  ours.clEnqueueBarrierWithWaitList = barrier;
  ours.clFinish = finish;
  return CL_SUCCESS;
}
