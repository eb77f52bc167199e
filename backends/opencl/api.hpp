// The part of OpenCL that Cistern needs: minimal ABI declarations of our own (tests/abi_opencl_test.cpp checks them
// against the real headers) and a struct of real functions, filled by whoever composes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cistern::opencl {

using cl_int = std::int32_t;
using cl_uint = std::uint32_t;
using cl_bitfield = std::uint64_t;
using cl_context_properties = std::intptr_t;
using cl_platform_id = struct PlatformHandle*;
using cl_device_id = struct DeviceHandle*;
using cl_context = struct ContextHandle*;
using cl_command_queue = struct QueueHandle*;
using cl_mem = struct MemoryHandle*;
using cl_program = struct ProgramHandle*;
using cl_kernel = struct KernelHandle*;
using cl_event = struct EventHandle*;
using cl_sampler = struct SamplerHandle*;
using cl_command_buffer = struct CommandBufferHandle*;
using cl_context_notify = void (*)(const char*, const void*, std::size_t, void*);
using cl_mem_notify = void (*)(cl_mem, void*);
using cl_event_notify = void (*)(cl_event, cl_int, void*);
using cl_program_notify = void (*)(cl_program, void*);
using cl_svm_notify = void (*)(cl_command_queue, cl_uint, void**, void*);
using cl_native_function = void (*)(void*);

struct cl_image_description {
  cl_uint type;
  std::size_t width, height, depth, array_size, row_pitch, slice_pitch;
  cl_uint mip_levels, samples;
  cl_mem memory;
};

constexpr cl_int kSuccess = 0;
constexpr cl_int kMemObjectAllocationFailure = -4;
constexpr cl_int kOutOfResources = -5;
constexpr cl_int kOutOfHostMemory = -6;
constexpr cl_int kFailedInWaitList = -14;
constexpr cl_int kInvalidValue = -30;
constexpr cl_int kInvalidContext = -34;
constexpr cl_int kInvalidMemObject = -38;
constexpr cl_int kInvalidOperation = -59;
constexpr cl_int kPlatformNotFound = -1001;

constexpr cl_bitfield kMemUseHostPtr = 1 << 3;
constexpr cl_bitfield kMemAllocHostPtr = 1 << 4;
constexpr cl_bitfield kMemCopyHostPtr = 1 << 5;

constexpr cl_bitfield kMapReadWrite = 3;

constexpr cl_uint kDeviceMaxMemAllocSize = 0x1010;
constexpr cl_uint kDeviceGlobalMemSize = 0x101F;
constexpr cl_uint kDeviceHostUnifiedMemory = 0x1035;
constexpr cl_uint kContextReferenceCount = 0x1080;
constexpr cl_uint kContextDevices = 0x1081;
constexpr cl_uint kQueueReferenceCount = 0x1092;
constexpr cl_uint kQueueProperties = 0x1093;
constexpr cl_bitfield kQueueOutOfOrder = 1 << 0;
constexpr cl_bitfield kQueueProfiling = 1 << 1;
constexpr cl_uint kMemSize = 0x1102;
constexpr cl_uint kMemMapCount = 0x1104;
constexpr cl_uint kMemReferenceCount = 0x1105;
constexpr cl_uint kImageElementSize = 0x1111;
constexpr cl_uint kEventExecutionStatus = 0x11D3;
constexpr cl_uint kProfilingStart = 0x1282;
constexpr cl_uint kProfilingEnd = 0x1283;
constexpr cl_int kComplete = 0;

// The real functions that the backends call.
struct Functions {
  cl_mem (*create_buffer)(cl_context, cl_bitfield, std::size_t, void*, cl_int*) = nullptr;
  cl_int (*release_memory)(cl_mem) = nullptr;
  cl_int (*memory_info)(cl_mem, cl_uint, std::size_t, void*, std::size_t*) = nullptr;
  cl_int (*enqueue_marker)(cl_command_queue, cl_uint, const cl_event*, cl_event*) = nullptr;
  cl_int (*event_info)(cl_event, cl_uint, std::size_t, void*, std::size_t*) = nullptr;
  cl_int (*release_event)(cl_event) = nullptr;
  cl_int (*wait_for_events)(cl_uint, const cl_event*) = nullptr;
  cl_int (*flush)(cl_command_queue) = nullptr;
  cl_int (*finish)(cl_command_queue) = nullptr;
  void* (*map_buffer)(cl_command_queue, cl_mem, cl_uint blocking, cl_bitfield, std::size_t, std::size_t, cl_uint,
                      const cl_event*, cl_event*, cl_int*) = nullptr;
  cl_int (*unmap)(cl_command_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*) = nullptr;
  cl_command_queue (*create_queue)(cl_context, cl_device_id, cl_bitfield, cl_int*) = nullptr;
  cl_int (*release_queue)(cl_command_queue) = nullptr;
};

}  // namespace cistern::opencl
