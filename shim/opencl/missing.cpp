// See missing.hpp.
#include "shim/opencl/missing.hpp"

#include "shim/opencl/next.hpp"
#include "shim/process/log.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/sink.hpp"

namespace cistern::opencl {
namespace {

#define CISTERN_NEED(name) \
  if (!next().name.is_there_for(object)) return #name;

const char* missing_for_pool(const void* object) {
  CISTERN_NEED(clReleaseMemObject)
  CISTERN_NEED(clGetMemObjectInfo)
  CISTERN_NEED(clEnqueueMarkerWithWaitList)
  CISTERN_NEED(clGetEventInfo)
  CISTERN_NEED(clReleaseEvent)
  CISTERN_NEED(clWaitForEvents)
  CISTERN_NEED(clFlush)
  CISTERN_NEED(clFinish)
  return nullptr;
}

const char* missing_for_staging(const void* object) {
  if (const char* const name = missing_for_pool(object)) return name;
  CISTERN_NEED(clCreateBuffer)
  CISTERN_NEED(clEnqueueMapBuffer)
  CISTERN_NEED(clEnqueueUnmapMemObject)
  CISTERN_NEED(clCreateCommandQueue)
  CISTERN_NEED(clReleaseCommandQueue)
  CISTERN_NEED(clEnqueueWriteBuffer)
  CISTERN_NEED(clEnqueueReadBuffer)
  CISTERN_NEED(clEnqueueWriteBufferRect)
  CISTERN_NEED(clEnqueueReadBufferRect)
  return nullptr;
}

#undef CISTERN_NEED

bool said(const char* name, const char* what, std::atomic<bool>& before) {
  if (!name) return false;
  if (before.exchange(true)) return true;
  Uncounted uncounted;
  StringSink line;
  line.print("an OpenCL driver has no {}: {}", name, what);
  warn_later(line.text());
  return true;
}

constinit std::atomic<bool> said_of_pool{false}, said_of_staging{false};

}  // namespace

bool lacks_function_for_pool(cl_context context) {
  return said(missing_for_pool(context), "its buffers are not pooled", said_of_pool);
}

bool lacks_function_for_staging(cl_command_queue queue) {
  return said(missing_for_staging(queue), "its copies are not staged", said_of_staging);
}

}  // namespace cistern::opencl
