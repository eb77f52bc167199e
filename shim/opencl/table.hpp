// The full table of real OpenCL functions: one member per OpenCL row of symbols/opencl.def, and those that only Cistern
// calls.
#pragma once
#include "backends/opencl/api.hpp"

namespace cistern::opencl {

// The ICD loader's dispatch table has this many slots (OpenCL 3.0); rows carry their slot.
constexpr std::size_t kDispatchSlots = 149;

constexpr cl_uint kSlotFlush = 46;

// Questions about an object, which are not interposed: slot, name, type of the object.
#define CISTERN_OPENCL_QUESTIONS(each)                                                                       \
  each(3, clGetDeviceInfo, cl_device_id) each(21, clGetImageInfo, cl_mem) each(42, clGetEventInfo, cl_event) \
      each(45, clGetEventProfilingInfo, cl_event)

struct Table {
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) result(*name) parameters = nullptr;
#include "shim/symbols/opencl.def"
#define CISTERN_MEMBER(slot, name, type) cl_int (*name)(type, cl_uint, std::size_t, void*, std::size_t*) = nullptr;
  CISTERN_OPENCL_QUESTIONS(CISTERN_MEMBER)
#undef CISTERN_MEMBER
  cl_int (*clFlush)(cl_command_queue) = nullptr;
};

}  // namespace cistern::opencl
