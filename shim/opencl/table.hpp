// The full table of real OpenCL functions: one member per OpenCL row of symbols/opencl.def, and those that only Cistern
// calls. The program's calls are passed on as they are: what the driver lacks a layer below may serve. Calls on our own
// account (`own`) are answered with kInvalidOperation where the loader or the driver of the object lacks the function.
#pragma once
#include <tuple>
#include <type_traits>

#include "backends/opencl/api.hpp"

namespace cistern::opencl {

// The ICD loader's dispatch table has this many slots (OpenCL 3.0); rows carry their slot.
constexpr std::size_t kDispatchSlots = 149;

constexpr cl_uint kSlotPlatforms = 0, kSlotFlush = 46;

// Questions about an object, which are not interposed: slot, name, type of the object.
#define CISTERN_OPENCL_QUESTIONS(each)                                                                               \
  each(1, clGetPlatformInfo, cl_platform_id) each(3, clGetDeviceInfo, cl_device_id) each(21, clGetImageInfo, cl_mem) \
      each(42, clGetEventInfo, cl_event) each(45, clGetEventProfilingInfo, cl_event)

// Whether the object's driver has a function in that slot of its table; true where objects may have none (next.hpp).
bool driver_has(cl_uint slot, const void* object);

template <class Type>
constexpr bool is_object =
    std::is_same_v<Type, cl_context> || std::is_same_v<Type, cl_command_queue> || std::is_same_v<Type, cl_mem> ||
    std::is_same_v<Type, cl_event> || std::is_same_v<Type, cl_kernel> || std::is_same_v<Type, cl_program> ||
    std::is_same_v<Type, cl_sampler> || std::is_same_v<Type, cl_device_id> || std::is_same_v<Type, cl_platform_id>;

template <class Signature, cl_uint slot>
class RealFunction;
template <class Result, class... Arguments, cl_uint slot>
class RealFunction<Result(Arguments...), slot> : public Foreign<Result(Arguments...)> {
  using Base = Foreign<Result(Arguments...)>;

 public:
  using Base::Base;
  Result own(Arguments... arguments) const {
    return has_arguments_driver(arguments...) ? (*this)(arguments...) : refuse(arguments...);
  }
  bool is_there_for(const void* object) const { return *this && driver_has(slot, object); }

 private:
  // A call goes to the driver of its first object.
  template <class First, class... Rest>
  bool has_arguments_driver(First first, Rest... rest) const {
    if constexpr (is_object<First>)
      return is_there_for(first);
    else if constexpr (std::is_same_v<Result(First, Rest...), cl_int(cl_uint, const cl_event*)>)
      return first && std::get<0>(std::tuple(rest...)) ? is_there_for(*std::get<0>(std::tuple(rest...))) : !!*this;
    else
      return !!*this;
  }
  static Result refuse(Arguments... arguments) {
    using Last = std::tuple_element_t<sizeof...(Arguments) - 1, std::tuple<Arguments...>>;
    if constexpr (std::is_same_v<Last, cl_int*>)
      if (cl_int* const error = std::get<sizeof...(Arguments) - 1>(std::tuple(arguments...)))
        *error = kInvalidOperation;
    if constexpr (std::is_same_v<Result, cl_int>)
      return kInvalidOperation;
    else
      return Result();
  }
};

struct Table {
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) RealFunction<result parameters, slot> name;
#include "shim/symbols/opencl.def"
#define CISTERN_MEMBER(slot, name, type) \
  RealFunction<cl_int(type, cl_uint, std::size_t, void*, std::size_t*), slot> name;
  CISTERN_OPENCL_QUESTIONS(CISTERN_MEMBER)
#undef CISTERN_MEMBER
  RealFunction<cl_int(cl_command_queue), kSlotFlush> clFlush;
  RealFunction<cl_int(cl_uint, cl_platform_id*, cl_uint*), kSlotPlatforms> clGetPlatformIDs;
};

}  // namespace cistern::opencl
