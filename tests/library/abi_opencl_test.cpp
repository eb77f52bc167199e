// Our own declarations of OpenCL against the real headers: slots of the dispatch table, number and size of every
// parameter, sizes of structs, values of constants. All at compile time.
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>
#include <gtest/gtest.h>

#include <array>
#include <type_traits>

#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/table.hpp"

namespace {

template <class Type>
constexpr std::size_t size_of = sizeof(Type);
template <>
constexpr std::size_t size_of<void> = 0;

// Result and parameters by size, and by whether they are pointers: what the calling convention sees.
template <class Function>
struct Shape;
template <class Result, class... Parameters>
struct Shape<Result (*)(Parameters...)> {
  static constexpr std::array<std::size_t, 1 + sizeof...(Parameters)> value = {
      2 * size_of<Result> + std::is_pointer_v<Result>, (2 * size_of<Parameters> + std::is_pointer_v<Parameters>)...};
};
template <class Signature, cistern::opencl::cl_uint slot>
struct Shape<cistern::opencl::RealFunction<Signature, slot>> : Shape<Signature*> {};

namespace ours = cistern::opencl;

#define SAME_FUNCTION(slot, name)                                                           \
  static_assert(offsetof(cl_icd_dispatch, name) == (slot) * sizeof(void*), #name ": slot"); \
  static_assert(Shape<decltype(ours::Table::name)>::value == Shape<decltype(cl_icd_dispatch::name)>::value, #name);
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) SAME_FUNCTION(slot, name)
#include "shim/symbols/opencl.def"
#define QUESTION(slot, name, type) SAME_FUNCTION(slot, name)
CISTERN_OPENCL_QUESTIONS(QUESTION)
SAME_FUNCTION(ours::kSlotFlush, clFlush)
SAME_FUNCTION(ours::kSlotPlatforms, clGetPlatformIDs)

static_assert(sizeof(cl_icd_dispatch) == ours::kDispatchSlots * sizeof(void*));

static_assert(sizeof(ours::cl_image_description) == sizeof(cl_image_desc));
static_assert(offsetof(ours::cl_image_description, memory) == offsetof(cl_image_desc, mem_object));

static_assert(ours::kSuccess == CL_SUCCESS && ours::kComplete == CL_COMPLETE);
static_assert(ours::kMemObjectAllocationFailure == CL_MEM_OBJECT_ALLOCATION_FAILURE);
static_assert(ours::kOutOfResources == CL_OUT_OF_RESOURCES && ours::kOutOfHostMemory == CL_OUT_OF_HOST_MEMORY);
static_assert(ours::kInvalidValue == CL_INVALID_VALUE);
static_assert(ours::kInvalidMemObject == CL_INVALID_MEM_OBJECT);
static_assert(ours::kInvalidOperation == CL_INVALID_OPERATION);
static_assert(ours::kInvalidBufferSize == CL_INVALID_BUFFER_SIZE);
static_assert(ours::kPlatformNotFound == CL_PLATFORM_NOT_FOUND_KHR);
static_assert(ours::kMemUseHostPtr == CL_MEM_USE_HOST_PTR && ours::kMemCopyHostPtr == CL_MEM_COPY_HOST_PTR);
static_assert(ours::kContextReferenceCount == CL_CONTEXT_REFERENCE_COUNT);
static_assert(ours::kQueueReferenceCount == CL_QUEUE_REFERENCE_COUNT && ours::kQueueProperties == CL_QUEUE_PROPERTIES);
static_assert(ours::kQueueOutOfOrder == CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
static_assert(ours::kQueueProfiling == CL_QUEUE_PROFILING_ENABLE);
static_assert(ours::kMemAllocHostPtr == CL_MEM_ALLOC_HOST_PTR);
static_assert(ours::kMapReadWrite == (CL_MAP_READ | CL_MAP_WRITE));
static_assert(ours::kDeviceHostUnifiedMemory == CL_DEVICE_HOST_UNIFIED_MEMORY);
static_assert(ours::kImageElementSize == CL_IMAGE_ELEMENT_SIZE);
static_assert(ours::kProfilingStart == CL_PROFILING_COMMAND_START && ours::kProfilingEnd == CL_PROFILING_COMMAND_END);
static_assert(ours::kMemSize == CL_MEM_SIZE && ours::kMemMapCount == CL_MEM_MAP_COUNT);
static_assert(ours::kMemReferenceCount == CL_MEM_REFERENCE_COUNT);
static_assert(ours::kEventExecutionStatus == CL_EVENT_COMMAND_EXECUTION_STATUS);

// Extension functions have no slot; their typedefs are in cl_ext.h.
#define SAME_EXTENSION(name) static_assert(Shape<decltype(&ours::hook::name)>::value == Shape<name##_fn>::value, #name)
SAME_EXTENSION(clHostMemAllocINTEL);
SAME_EXTENSION(clDeviceMemAllocINTEL);
SAME_EXTENSION(clSharedMemAllocINTEL);
SAME_EXTENSION(clMemFreeINTEL);
SAME_EXTENSION(clMemBlockingFreeINTEL);
SAME_EXTENSION(clCreateCommandBufferKHR);
SAME_EXTENSION(clCreateCommandQueueWithPropertiesKHR);
SAME_EXTENSION(clSetKernelArgMemPointerINTEL);
static_assert(Shape<decltype(&ours::hook::clSetKernelArgSVMPointerARM)>::value ==
              Shape<decltype(&::clSetKernelArgSVMPointerARM)>::value);

// The compiler has done the work; this counts the rows, so that an empty table would fail.
TEST(OpenclAbi, EveryRowWasCompared) {
  int rows = 0;
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) ++rows;
#include "shim/symbols/opencl.def"
  EXPECT_GT(rows, 80);
}

}  // namespace
