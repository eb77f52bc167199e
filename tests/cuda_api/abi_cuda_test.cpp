// Our own declarations of CUDA against the real headers: number, size and kind of every parameter, sizes and offsets of
// structs, values of constants. All at compile time.
//
// The headers as the driver itself sees them: every version of every function under its exported name.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>
#undef __CUDA_API_VERSION_INTERNAL
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <type_traits>

#include "backends/cuda/api.hpp"

// The functions of the rows, as symbols/cuda.def declares them.
namespace cistern::cuda::rows {
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) CUresult name parameters;
#define CUDA_RUNTIME(action, name, parameters, arguments) cudaError_t name parameters;
#include "shim/symbols/cuda.def"
}  // namespace cistern::cuda::rows

namespace {

namespace ours = cistern::cuda;
namespace rows = cistern::cuda::rows;

// What the calling convention sees of a type: its size, and whether it is a pointer, a struct or a number.
template <class Type>
constexpr std::size_t kShapeOf = 4 * sizeof(Type) + (std::is_pointer_v<Type>                          ? 1
                                                     : std::is_class_v<Type> || std::is_union_v<Type> ? 2
                                                                                                      : 0);

template <class Function>
struct Shape;
template <class Result, class... Parameters>
struct Shape<Result (*)(Parameters...)> {
  static constexpr std::array<std::size_t, 1 + sizeof...(Parameters)> value = {kShapeOf<Result>,
                                                                               kShapeOf<Parameters>...};
};
template <class Ours, class Theirs>
constexpr bool kSameShape = [] {
  if constexpr (Shape<Ours>::value.size() == Shape<Theirs>::value.size())
    return Shape<Ours>::value == Shape<Theirs>::value;
  else
    return false;
}();

static_assert(!kSameShape<int (*)(int), int (*)(long)> && !kSameShape<int (*)(int), int (*)(int, int)>);
static_assert(!kSameShape<int (*)(void*), int (*)(unsigned long)> && kSameShape<int (*)(void*), CUresult (*)(CUarray)>);

// The typedef of the version that the row names; those of the per-thread twins carry a suffix and are the same
// functions.
#define TYPEDEF_any(base, version, name) \
  static_assert(kSameShape<decltype(&rows::name), PFN_##base##_v##version>, #name ": typedef");
#define TYPEDEF_legacy(base, version, name) TYPEDEF_any(base, version, name)
#define TYPEDEF_per_thread(base, version, name)
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) \
  static_assert(kSameShape<decltype(&rows::name), decltype(&::name)>, #name);   \
  TYPEDEF_##stream(base, version, name)
#include "shim/symbols/cuda.def"

// The runtime declares its per-thread twins only to programs that are built for them.
#define cudaMallocAsync_ptsz cudaMallocAsync
#define cudaMallocFromPoolAsync_ptsz cudaMallocFromPoolAsync
#define cudaFreeAsync_ptsz cudaFreeAsync
#define cudaMemcpy_ptds cudaMemcpy
#define cudaMemcpyAsync_ptsz cudaMemcpyAsync
#define cudaMemcpy2D_ptds cudaMemcpy2D
#define cudaMemcpy2DAsync_ptsz cudaMemcpy2DAsync
#define CUDA_RUNTIME(action, name, parameters, arguments) \
  static_assert(kSameShape<decltype(&rows::name), decltype(&::name)>, #name);
#include "shim/symbols/cuda.def"

// --- Types
#define SAME_TYPE(name) static_assert(kShapeOf<ours::name> == kShapeOf<::name>, #name);
SAME_TYPE(CUresult)
SAME_TYPE(cudaError_t)
SAME_TYPE(CUdevice)
SAME_TYPE(CUdeviceptr)
SAME_TYPE(CUmemGenericAllocationHandle)
SAME_TYPE(CUcontext)
SAME_TYPE(CUgreenCtx)
SAME_TYPE(CUdevResourceDesc)
SAME_TYPE(CUstream)
SAME_TYPE(CUevent)
SAME_TYPE(CUfunction)
SAME_TYPE(CUgraph)
SAME_TYPE(CUgraphExec)
SAME_TYPE(CUgraphNode)
SAME_TYPE(CUarray)
SAME_TYPE(CUmipmappedArray)
SAME_TYPE(CUmemoryPool)
SAME_TYPE(CUexternalMemory)
SAME_TYPE(CUhostFn)
SAME_TYPE(CUstreamCallback)
SAME_TYPE(CUDA_HOST_NODE_PARAMS)
SAME_TYPE(CUpointer_attribute)
SAME_TYPE(cudaStream_t)
SAME_TYPE(cudaArray_t)
SAME_TYPE(cudaMipmappedArray_t)
SAME_TYPE(cudaMemPool_t)
SAME_TYPE(CUDA_ARRAY_DESCRIPTOR)
SAME_TYPE(CUDA_ARRAY3D_DESCRIPTOR)
SAME_TYPE(CUDA_MEMCPY2D)
SAME_TYPE(CUDA_MEMCPY3D)
SAME_TYPE(CUDA_MEMCPY3D_BATCH_OP)
SAME_TYPE(CUmemcpyAttributes)
SAME_TYPE(CUlaunchConfig)
SAME_TYPE(CUmemLocation)
SAME_TYPE(CUmemAllocationProp)
SAME_TYPE(CUmemPoolProps)
SAME_TYPE(CUDA_MEM_ALLOC_NODE_PARAMS)
SAME_TYPE(CUgraphNodeParams)
SAME_TYPE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC)
SAME_TYPE(CUipcMemHandle)
SAME_TYPE(cudaPitchedPtr)
SAME_TYPE(cudaExtent)
SAME_TYPE(cudaChannelFormatDesc)
SAME_TYPE(cudaIpcMemHandle_t)
static_assert(alignof(ours::CUipcMemHandle) == alignof(::CUipcMemHandle));

// --- Fields
#define SAME_FIELD(type, our_field, their_field)                                    \
  static_assert(offsetof(ours::type, our_field) == offsetof(::type, their_field) && \
                    sizeof(ours::type::our_field) == sizeof(::type::their_field),   \
                #type "." #our_field);
#define SAME_SUBFIELD(type, our_field, their_field)                                 \
  static_assert(offsetof(ours::type, our_field) == offsetof(::type, their_field) && \
                    sizeof(ours::type{}.our_field) == sizeof(::type{}.their_field), \
                #type "." #our_field);
SAME_FIELD(CUmemcpyAttributes, source_access_order, srcAccessOrder)
SAME_FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, pool, poolProps)
SAME_FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, bytes, bytesize)
SAME_FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, address, dptr)
SAME_FIELD(CUgraphNodeParams, type, type)
SAME_SUBFIELD(CUgraphNodeParams, allocation.bytes, alloc.bytesize)
SAME_SUBFIELD(CUgraphNodeParams, freed, free.dptr)
SAME_SUBFIELD(CUgraphNodeParams, host.function, host.fn)
SAME_SUBFIELD(CUgraphNodeParams, host.argument, host.userData)
SAME_FIELD(CUDA_HOST_NODE_PARAMS, function, fn)
SAME_FIELD(CUDA_HOST_NODE_PARAMS, argument, userData)
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, width, Width)
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, height, Height)
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, format, Format)
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, channels, NumChannels)
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, width, Width)
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, height, Height)
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, depth, Depth)
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, format, Format)
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, channels, NumChannels)
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, flags, Flags)
SAME_SUBFIELD(CUDA_MEMCPY2D, source.x_bytes, srcXInBytes)
SAME_SUBFIELD(CUDA_MEMCPY2D, source.y, srcY)
SAME_SUBFIELD(CUDA_MEMCPY2D, source.memory_type, srcMemoryType)
SAME_SUBFIELD(CUDA_MEMCPY2D, source.host, srcHost)
SAME_SUBFIELD(CUDA_MEMCPY2D, source.device, srcDevice)
SAME_SUBFIELD(CUDA_MEMCPY2D, source.array, srcArray)
SAME_SUBFIELD(CUDA_MEMCPY2D, source.pitch, srcPitch)
SAME_SUBFIELD(CUDA_MEMCPY2D, target.x_bytes, dstXInBytes)
SAME_SUBFIELD(CUDA_MEMCPY2D, target.memory_type, dstMemoryType)
SAME_SUBFIELD(CUDA_MEMCPY2D, target.host, dstHost)
SAME_SUBFIELD(CUDA_MEMCPY2D, target.device, dstDevice)
SAME_SUBFIELD(CUDA_MEMCPY2D, target.array, dstArray)
SAME_SUBFIELD(CUDA_MEMCPY2D, target.pitch, dstPitch)
SAME_FIELD(CUDA_MEMCPY2D, width_bytes, WidthInBytes)
SAME_FIELD(CUDA_MEMCPY2D, height, Height)
SAME_SUBFIELD(CUDA_MEMCPY3D, source.x_bytes, srcXInBytes)
SAME_SUBFIELD(CUDA_MEMCPY3D, source.y, srcY)
SAME_SUBFIELD(CUDA_MEMCPY3D, source.z, srcZ)
SAME_SUBFIELD(CUDA_MEMCPY3D, source.level, srcLOD)
SAME_SUBFIELD(CUDA_MEMCPY3D, source.memory_type, srcMemoryType)
SAME_SUBFIELD(CUDA_MEMCPY3D, source.host, srcHost)
SAME_SUBFIELD(CUDA_MEMCPY3D, source.device, srcDevice)
SAME_SUBFIELD(CUDA_MEMCPY3D, source.array, srcArray)
SAME_SUBFIELD(CUDA_MEMCPY3D, source.pitch, srcPitch)
SAME_SUBFIELD(CUDA_MEMCPY3D, source.height, srcHeight)
SAME_SUBFIELD(CUDA_MEMCPY3D, target.x_bytes, dstXInBytes)
SAME_SUBFIELD(CUDA_MEMCPY3D, target.memory_type, dstMemoryType)
SAME_SUBFIELD(CUDA_MEMCPY3D, target.host, dstHost)
SAME_SUBFIELD(CUDA_MEMCPY3D, target.device, dstDevice)
SAME_SUBFIELD(CUDA_MEMCPY3D, target.array, dstArray)
SAME_SUBFIELD(CUDA_MEMCPY3D, target.pitch, dstPitch)
SAME_SUBFIELD(CUDA_MEMCPY3D, target.height, dstHeight)
SAME_FIELD(CUDA_MEMCPY3D, width_bytes, WidthInBytes)
SAME_FIELD(CUDA_MEMCPY3D, height, Height)
SAME_FIELD(CUDA_MEMCPY3D, depth, Depth)
// A copy between contexts is described alike.
static_assert(sizeof(ours::CUDA_MEMCPY3D) == sizeof(::CUDA_MEMCPY3D_PEER));
#define SAME_AS_PEER(field) \
  static_assert(offsetof(::CUDA_MEMCPY3D, field) == offsetof(::CUDA_MEMCPY3D_PEER, field), #field);
SAME_AS_PEER(srcXInBytes)
SAME_AS_PEER(srcY)
SAME_AS_PEER(srcZ)
SAME_AS_PEER(srcMemoryType)
SAME_AS_PEER(srcDevice)
SAME_AS_PEER(srcPitch)
SAME_AS_PEER(srcHeight)
SAME_AS_PEER(dstXInBytes)
SAME_AS_PEER(dstY)
SAME_AS_PEER(dstZ)
SAME_AS_PEER(dstMemoryType)
SAME_AS_PEER(dstDevice)
SAME_AS_PEER(dstPitch)
SAME_AS_PEER(dstHeight)
SAME_AS_PEER(WidthInBytes)
SAME_AS_PEER(Height)
SAME_AS_PEER(Depth)
SAME_FIELD(CUlaunchConfig, stream, hStream)
SAME_SUBFIELD(CUDA_MEMCPY3D_BATCH_OP, source.type, src.type)
SAME_SUBFIELD(CUDA_MEMCPY3D_BATCH_OP, source.pointer.address, src.op.ptr.ptr)
SAME_SUBFIELD(CUDA_MEMCPY3D_BATCH_OP, source.pointer.row_length, src.op.ptr.rowLength)
SAME_SUBFIELD(CUDA_MEMCPY3D_BATCH_OP, source.pointer.layer_height, src.op.ptr.layerHeight)
SAME_SUBFIELD(CUDA_MEMCPY3D_BATCH_OP, source.pointer.hint, src.op.ptr.locHint)
SAME_SUBFIELD(CUDA_MEMCPY3D_BATCH_OP, source.array.array, src.op.array.array)
SAME_SUBFIELD(CUDA_MEMCPY3D_BATCH_OP, source.array.z, src.op.array.offset.z)
SAME_SUBFIELD(CUDA_MEMCPY3D_BATCH_OP, target.type, dst.type)
SAME_SUBFIELD(CUDA_MEMCPY3D_BATCH_OP, width, extent.width)
SAME_SUBFIELD(CUDA_MEMCPY3D_BATCH_OP, depth, extent.depth)
SAME_FIELD(CUDA_MEMCPY3D_BATCH_OP, source_access_order, srcAccessOrder)
SAME_FIELD(CUDA_MEMCPY3D_BATCH_OP, flags, flags)
SAME_FIELD(CUmemLocation, type, type)
SAME_FIELD(CUmemLocation, id, id)
SAME_FIELD(CUmemAllocationProp, type, type)
SAME_FIELD(CUmemAllocationProp, handle_types, requestedHandleTypes)
SAME_FIELD(CUmemAllocationProp, location, location)
SAME_FIELD(CUmemAllocationProp, windows_metadata, win32HandleMetaData)
SAME_SUBFIELD(CUmemAllocationProp, compression_type, allocFlags.compressionType)
SAME_SUBFIELD(CUmemAllocationProp, rdma_capable, allocFlags.gpuDirectRDMACapable)
SAME_SUBFIELD(CUmemAllocationProp, usage, allocFlags.usage)
SAME_FIELD(CUmemPoolProps, type, allocType)
SAME_FIELD(CUmemPoolProps, handle_types, handleTypes)
SAME_FIELD(CUmemPoolProps, location, location)
SAME_FIELD(CUmemPoolProps, bytes_max, maxSize)
SAME_FIELD(CUmemPoolProps, usage, usage)
SAME_FIELD(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, type, type)
SAME_SUBFIELD(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, descriptor, handle.fd)
SAME_SUBFIELD(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, windows.name, handle.win32.name)
SAME_FIELD(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, bytes, size)
SAME_FIELD(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, flags, flags)
SAME_FIELD(cudaPitchedPtr, pointer, ptr)
SAME_FIELD(cudaPitchedPtr, pitch, pitch)
SAME_FIELD(cudaPitchedPtr, width_bytes, xsize)
SAME_FIELD(cudaPitchedPtr, height, ysize)
SAME_FIELD(cudaExtent, width, width)
SAME_FIELD(cudaExtent, depth, depth)
SAME_FIELD(cudaChannelFormatDesc, w, w)
SAME_FIELD(cudaChannelFormatDesc, kind, f)

// --- Constants
static_assert(ours::kSuccess == CUDA_SUCCESS && ours::kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(ours::kSuccess == cudaSuccess && ours::kInvalidValue == cudaErrorInvalidValue);
static_assert(ours::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && ours::kOutOfMemory == cudaErrorMemoryAllocation);
static_assert(ours::kNotInitialized == CUDA_ERROR_NOT_INITIALIZED && ours::kDeinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(ours::kNoDevice == CUDA_ERROR_NO_DEVICE && ours::kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(ours::kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(ours::kEccUncorrectable == CUDA_ERROR_ECC_UNCORRECTABLE);
static_assert(ours::kNvlinkUncorrectable == CUDA_ERROR_NVLINK_UNCORRECTABLE &&
              ours::kContained == CUDA_ERROR_CONTAINED);
static_assert(ours::kInvalidHandle == CUDA_ERROR_INVALID_HANDLE && ours::kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(ours::kNotReady == CUDA_ERROR_NOT_READY && ours::kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(ours::kLaunchTimeout == CUDA_ERROR_LAUNCH_TIMEOUT);
static_assert(ours::kContextIsDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED && ours::kAssert == CUDA_ERROR_ASSERT);
static_assert(ours::kHardwareStackError == CUDA_ERROR_HARDWARE_STACK_ERROR);
static_assert(ours::kIllegalInstruction == CUDA_ERROR_ILLEGAL_INSTRUCTION);
static_assert(ours::kMisalignedAddress == CUDA_ERROR_MISALIGNED_ADDRESS);
static_assert(ours::kInvalidAddressSpace == CUDA_ERROR_INVALID_ADDRESS_SPACE);
static_assert(ours::kInvalidProgramCounter == CUDA_ERROR_INVALID_PC && ours::kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(ours::kTensorMemoryLeak == CUDA_ERROR_TENSOR_MEMORY_LEAK);
static_assert(ours::kMpsClientTerminated == CUDA_ERROR_MPS_CLIENT_TERMINATED);
static_assert(ours::kNotPermitted == CUDA_ERROR_NOT_PERMITTED);
static_assert(ours::kNotSupported == CUDA_ERROR_NOT_SUPPORTED && ours::kExternalDevice == CUDA_ERROR_EXTERNAL_DEVICE);
static_assert(ours::kStreamCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(ours::kStreamCaptureInvalidated == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
static_assert(ours::kStreamCaptureImplicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT &&
              ours::kUnknown == CUDA_ERROR_UNKNOWN);
static_assert(ours::kLookUpDefault == CU_GET_PROC_ADDRESS_DEFAULT);
static_assert(ours::kLookUpLegacyStream == CU_GET_PROC_ADDRESS_LEGACY_STREAM);
static_assert(ours::kLookUpPerThreadStream == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
static_assert(ours::kLookUpFound == CU_GET_PROC_ADDRESS_SUCCESS);
static_assert(ours::kLookUpNotFound == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
static_assert(ours::kLookUpVersionNotSufficient == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
static_assert(ours::kPointerContext == CU_POINTER_ATTRIBUTE_CONTEXT);
static_assert(ours::kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(ours::kPointerDevicePointer == CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
static_assert(ours::kPointerHostPointer == CU_POINTER_ATTRIBUTE_HOST_POINTER);
static_assert(ours::kPointerPeerTokens == CU_POINTER_ATTRIBUTE_P2P_TOKENS);
static_assert(ours::kPointerSyncMemops == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
static_assert(ours::kPointerBufferId == CU_POINTER_ATTRIBUTE_BUFFER_ID);
static_assert(ours::kPointerIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(ours::kPointerDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(ours::kPointerIsLegacyIpcCapable == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
static_assert(ours::kPointerRangeStart == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
static_assert(ours::kPointerRangeSize == CU_POINTER_ATTRIBUTE_RANGE_SIZE);
static_assert(ours::kPointerMapped == CU_POINTER_ATTRIBUTE_MAPPED);
static_assert(ours::kPointerAllowedHandleTypes == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
static_assert(ours::kPointerIsRdmaCapable == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE);
static_assert(ours::kPointerAccessFlags == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
static_assert(ours::kPointerMemoryPool == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
static_assert(ours::kPointerMappingSize == CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
static_assert(ours::kPointerMappingStart == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
static_assert(ours::kPointerMemoryBlockId == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
static_assert(ours::kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(ours::kHostAllocPortable == cudaHostAllocPortable);
static_assert(ours::kHostAllocDeviceMap == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(ours::kHostAllocWriteCombined == CU_MEMHOSTALLOC_WRITECOMBINED);
static_assert(ours::kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(ours::kHostRegisterDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(ours::kHostRegisterIoMemory == CU_MEMHOSTREGISTER_IOMEMORY);
static_assert(ours::kHostRegisterReadOnly == CU_MEMHOSTREGISTER_READ_ONLY);
static_assert(ours::kStreamNonBlocking == CU_STREAM_NON_BLOCKING && ours::kEventBlockingSync == CU_EVENT_BLOCKING_SYNC);
static_assert(ours::kEventDisableTiming == CU_EVENT_DISABLE_TIMING &&
              ours::kEventInterprocess == CU_EVENT_INTERPROCESS);
static_assert(ours::kCaptureModeGlobal == CU_STREAM_CAPTURE_MODE_GLOBAL);
static_assert(ours::kCaptureModeThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(ours::kCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(ours::kCaptureStatusNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(ours::kCaptureStatusActive == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(ours::kNodeRunsHostFunction == CU_GRAPH_NODE_TYPE_HOST);
static_assert(ours::kNodeAllocates == CU_GRAPH_NODE_TYPE_MEM_ALLOC && ours::kNodeFrees == CU_GRAPH_NODE_TYPE_MEM_FREE);
static_assert(ours::kMemoryHost == CU_MEMORYTYPE_HOST && ours::kMemoryDevice == CU_MEMORYTYPE_DEVICE);
static_assert(ours::kMemoryArray == CU_MEMORYTYPE_ARRAY && ours::kMemoryUnified == CU_MEMORYTYPE_UNIFIED);
static_assert(ours::kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE && ours::kLocationHost == CU_MEM_LOCATION_TYPE_HOST);
static_assert(ours::kLocationHostNuma == CU_MEM_LOCATION_TYPE_HOST_NUMA);
static_assert(ours::kLocationHostNumaCurrent == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
static_assert(ours::kOperandPointer == CU_MEMCPY_OPERAND_TYPE_POINTER);
static_assert(ours::kSourceInStreamOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
static_assert(ours::kSourceDuringCall == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
static_assert(ours::kSourceAnyTime == CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
static_assert(ours::kOperandArray == CU_MEMCPY_OPERAND_TYPE_ARRAY);
static_assert(ours::kCopyHostToHost == cudaMemcpyHostToHost && ours::kCopyHostToDevice == cudaMemcpyHostToDevice);
static_assert(ours::kCopyDeviceToHost == cudaMemcpyDeviceToHost && ours::kCopyDefault == cudaMemcpyDefault);
static_assert(ours::kCopyDeviceToDevice == cudaMemcpyDeviceToDevice);
static_assert(ours::kArray3dLayered == CUDA_ARRAY3D_LAYERED && ours::kArray3dCubemap == CUDA_ARRAY3D_CUBEMAP);
static_assert(ours::kArray3dSparse == CUDA_ARRAY3D_SPARSE);
static_assert(ours::kArray3dDeferredMapping == CUDA_ARRAY3D_DEFERRED_MAPPING);
static_assert(ours::channel_bytes(CU_AD_FORMAT_UNSIGNED_INT8) == 1 &&
              ours::channel_bytes(CU_AD_FORMAT_SIGNED_INT8) == 1);
static_assert(ours::channel_bytes(CU_AD_FORMAT_UNSIGNED_INT16) == 2);
static_assert(ours::channel_bytes(CU_AD_FORMAT_SIGNED_INT16) == 2 && ours::channel_bytes(CU_AD_FORMAT_HALF) == 2);
static_assert(ours::channel_bytes(CU_AD_FORMAT_UNSIGNED_INT32) == 4);
static_assert(ours::channel_bytes(CU_AD_FORMAT_SIGNED_INT32) == 4 && ours::channel_bytes(CU_AD_FORMAT_FLOAT) == 4);
static_assert(ours::channel_bytes(CU_AD_FORMAT_NV12) == 0 && ours::channel_bytes(CU_AD_FORMAT_BC1_UNORM) == 0);

TEST(CudaAbi, DefaultStreamHandles) {
  EXPECT_EQ(static_cast<void*>(ours::legacy_stream()), static_cast<void*>(CU_STREAM_LEGACY));
  EXPECT_EQ(static_cast<void*>(ours::per_thread_stream()), static_cast<void*>(CU_STREAM_PER_THREAD));
}

// The compiler has done the work; this counts the rows, so that an empty table would fail.
TEST(CudaAbi, EveryRowWasCompared) {
  int driver = 0, runtime = 0;
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) ++driver;
#define CUDA_RUNTIME(action, name, parameters, arguments) ++runtime;
#include "shim/symbols/cuda.def"
  EXPECT_GT(driver, 150);
  EXPECT_GT(runtime, 25);
}

}  // namespace
