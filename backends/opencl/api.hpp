// The part of OpenCL that Cistern needs: minimal ABI declarations of our own (tests/abi_opencl_test.cpp checks them
// against the real headers) and a struct of real functions, filled by whoever composes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "pool/base/foreign.hpp"

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
constexpr cl_int kInvalidBufferSize = -61;
constexpr cl_int kPlatformNotFound = -1001;

constexpr cl_bitfield kMemUseHostPtr = 1 << 3;
constexpr cl_bitfield kMemAllocHostPtr = 1 << 4;
constexpr cl_bitfield kMemCopyHostPtr = 1 << 5;

constexpr cl_bitfield kMapReadWrite = 3;
constexpr cl_bitfield kMapWrite = 1 << 1;
constexpr cl_bitfield kMapWriteInvalidate = 1 << 2;

constexpr cl_bitfield kDeviceTypeCpu = 1 << 1;

constexpr cl_uint kDeviceType = 0x1000;
constexpr cl_uint kDeviceMaxMemAllocSize = 0x1010;
constexpr cl_uint kDeviceGlobalMemSize = 0x101F;
constexpr cl_uint kDeviceName = 0x102B;
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
  Foreign<cl_mem(cl_context, cl_bitfield, std::size_t, void*, cl_int*)> create_buffer{};
  Foreign<cl_int(cl_mem)> release_memory{};
  Foreign<cl_int(cl_mem, cl_uint, std::size_t, void*, std::size_t*)> memory_info{};
  Foreign<cl_int(cl_command_queue, cl_uint, const cl_event*, cl_event*)> enqueue_marker{};
  Foreign<cl_int(cl_event, cl_uint, std::size_t, void*, std::size_t*)> event_info{};
  Foreign<cl_int(cl_event)> release_event{};
  Foreign<cl_int(cl_uint, const cl_event*)> wait_for_events{};
  Foreign<cl_int(cl_command_queue)> flush{};
  Foreign<cl_int(cl_command_queue)> finish{};
  Foreign<void*(cl_command_queue, cl_mem, cl_uint blocking, cl_bitfield, std::size_t, std::size_t, cl_uint,
                const cl_event*, cl_event*, cl_int*)>
      map_buffer{};
  Foreign<cl_int(cl_command_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*)> unmap{};
  Foreign<cl_command_queue(cl_context, cl_device_id, cl_bitfield, cl_int*)> create_queue{};
  Foreign<cl_int(cl_command_queue)> release_queue{};
};

}  // namespace cistern::opencl
