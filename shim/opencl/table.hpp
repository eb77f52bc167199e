// The full table of real OpenCL functions: one member per OpenCL row of symbols/opencl.def, and those that only Cistern
// calls.
#pragma once
#include "backends/opencl/api.hpp"

namespace cistern::opencl {

// The ICD loader's dispatch table has this many slots (OpenCL 3.0); rows carry their slot.
constexpr std::size_t kDispatchSlots = 149;
constexpr cl_uint kSlotMemObjectInfo = 20;
constexpr cl_uint kSlotEventInfo = 42;

struct Table {
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) result(*name) parameters = nullptr;
#include "shim/symbols/opencl.def"
  cl_int (*clGetMemObjectInfo)(cl_mem, cl_uint, std::size_t, void*, std::size_t*) = nullptr;
  cl_int (*clGetEventInfo)(cl_event, cl_uint, std::size_t, void*, std::size_t*) = nullptr;
};

}  // namespace cistern::opencl
