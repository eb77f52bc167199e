// Stands between a program and Cistern and passes calls on: preloaded, as a tool that interposes clCreateBuffer, or
// opened as a layer of OpenCL.
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#include <CL/cl_layer.h>
#include <dlfcn.h>

#include "tests/support/layer.hpp"

namespace {

cl_icd_dispatch below, ours;
volatile int calls = 0;

template <class Create>
cl_mem pass_on(Create create, cl_context context, cl_mem_flags flags, size_t size, void* host, cl_int* errcode) {
  const cl_mem made = create(context, flags, size, host, errcode);
  calls = calls + 1;  // no tail call: the frame stays
  return made;
}

cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size, void* host, cl_int* errcode) {
  return pass_on(below.clCreateBuffer, context, flags, size, host, errcode);
}

}  // namespace

extern "C" cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host,
                                             cl_int* errcode) {
  static const auto next = reinterpret_cast<decltype(&clCreateBuffer)>(dlsym(RTLD_NEXT, "clCreateBuffer"));
  return pass_on(next, context, flags, size, host, errcode);
}

extern "C" cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t bytes, void* value, size_t* bytes_ret) {
  return cistern::test::layer_info("pass on", name, bytes, value, bytes_ret);
}

extern "C" cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch* target, cl_uint* count_ret,
                                          const cl_icd_dispatch** layer) {
  if (!cistern::test::begin_layer(count, target, count_ret, layer, below, ours)) return CL_INVALID_VALUE;
  ours.clCreateBuffer = create_buffer;
  return CL_SUCCESS;
}
