// The part of CUDA that Cistern needs: minimal ABI declarations of our own, the same for CUDA 11, 12 and 13
// (tests/cuda_api/abi_cuda_test.cpp checks them against the real headers). Enumerations are int, as the driver's are.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cistern::cuda {

using CUresult = int;
using cudaError_t = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
using CUcontext = struct ContextHandle*;
using CUgreenCtx = struct GreenContextHandle*;
using CUdevResourceDesc = struct DeviceResourceDescription*;
using CUstream = struct StreamHandle*;
using CUevent = struct EventHandle*;
using CUfunction = struct FunctionHandle*;
using CUgraph = struct GraphHandle*;
using CUgraphExec = struct GraphExecHandle*;
using CUgraphNode = struct GraphNodeHandle*;
using CUarray = struct ArrayHandle*;
using CUmipmappedArray = struct MipmappedArrayHandle*;
using CUmemoryPool = struct MemoryPoolHandle*;
using CUexternalMemory = struct ExternalMemoryHandle*;
using CUmodule = struct ModuleHandle*;
using CUlibrary = struct LibraryHandle*;
using CUkernel = struct KernelHandle*;

using CUhostFn = void (*)(void*);
using CUstreamCallback = void (*)(CUstream, CUresult, void*);

// The runtime's handles are the driver's.
using cudaStream_t = CUstream;
using cudaArray_t = CUarray;
using cudaMipmappedArray_t = CUmipmappedArray;
using cudaMemPool_t = CUmemoryPool;

// --- Results
constexpr CUresult kSuccess = 0;
constexpr CUresult kInvalidValue = 1;
constexpr CUresult kOutOfMemory = 2;
constexpr CUresult kNotInitialized = 3;
constexpr CUresult kDeinitialized = 4;
constexpr CUresult kNoDevice = 100;
constexpr CUresult kInvalidDevice = 101;
constexpr CUresult kInvalidContext = 201;
constexpr CUresult kEccUncorrectable = 214;
constexpr CUresult kNvlinkUncorrectable = 220;
constexpr CUresult kContained = 226;
constexpr CUresult kInvalidHandle = 400;
constexpr CUresult kNotFound = 500;
constexpr CUresult kNotReady = 600;
constexpr CUresult kIllegalAddress = 700;
constexpr CUresult kLaunchTimeout = 702;
constexpr CUresult kContextIsDestroyed = 709;
constexpr CUresult kAssert = 710;
constexpr CUresult kHardwareStackError = 714;
constexpr CUresult kIllegalInstruction = 715;
constexpr CUresult kMisalignedAddress = 716;
constexpr CUresult kInvalidAddressSpace = 717;
constexpr CUresult kInvalidProgramCounter = 718;
constexpr CUresult kLaunchFailed = 719;
constexpr CUresult kTensorMemoryLeak = 721;
constexpr CUresult kNotPermitted = 800;
constexpr CUresult kNotSupported = 801;
constexpr CUresult kMpsClientTerminated = 810;
constexpr CUresult kStreamCaptureUnsupported = 900;
constexpr CUresult kStreamCaptureInvalidated = 901;
constexpr CUresult kStreamCaptureImplicit = 906;
constexpr CUresult kExternalDevice = 911;
constexpr CUresult kUnknown = 999;

// After these the context is of no more use: it is gone, or answers nothing but the same error.
constexpr bool is_sticky(CUresult result) {
  switch (result) {
    case kEccUncorrectable:
    case kNvlinkUncorrectable:
    case kContained:
    case kIllegalAddress:
    case kLaunchTimeout:
    case kContextIsDestroyed:
    case kAssert:
    case kHardwareStackError:
    case kIllegalInstruction:
    case kMisalignedAddress:
    case kInvalidAddressSpace:
    case kInvalidProgramCounter:
    case kLaunchFailed:
    case kTensorMemoryLeak:
    case kMpsClientTerminated:
    case kExternalDevice:
      return true;
    default:
      return false;
  }
}

// --- cuGetProcAddress: flags and answers
constexpr std::uint64_t kLookUpDefault = 0;
constexpr std::uint64_t kLookUpLegacyStream = 1;
constexpr std::uint64_t kLookUpPerThreadStream = 2;
constexpr int kLookUpFound = 0;
constexpr int kLookUpNotFound = 1;
constexpr int kLookUpVersionNotSufficient = 2;

// --- cuPointerGetAttribute
using CUpointer_attribute = int;
constexpr CUpointer_attribute kPointerContext = 1;
constexpr CUpointer_attribute kPointerMemoryType = 2;
constexpr CUpointer_attribute kPointerDevicePointer = 3;
constexpr CUpointer_attribute kPointerHostPointer = 4;
constexpr CUpointer_attribute kPointerPeerTokens = 5;
constexpr CUpointer_attribute kPointerSyncMemops = 6;
constexpr CUpointer_attribute kPointerBufferId = 7;
constexpr CUpointer_attribute kPointerIsManaged = 8;
constexpr CUpointer_attribute kPointerDeviceOrdinal = 9;
constexpr CUpointer_attribute kPointerIsLegacyIpcCapable = 10;
constexpr CUpointer_attribute kPointerRangeStart = 11;
constexpr CUpointer_attribute kPointerRangeSize = 12;
constexpr CUpointer_attribute kPointerMapped = 13;
constexpr CUpointer_attribute kPointerAllowedHandleTypes = 14;
constexpr CUpointer_attribute kPointerIsRdmaCapable = 15;
constexpr CUpointer_attribute kPointerAccessFlags = 16;
constexpr CUpointer_attribute kPointerMemoryPool = 17;
constexpr CUpointer_attribute kPointerMappingSize = 18;
constexpr CUpointer_attribute kPointerMappingStart = 19;
constexpr CUpointer_attribute kPointerMemoryBlockId = 20;

// --- Flags and enumerations
constexpr unsigned kHostAllocPortable = 1;
constexpr unsigned kHostAllocDeviceMap = 2;
constexpr unsigned kHostAllocWriteCombined = 4;
constexpr unsigned kHostRegisterPortable = 1;
constexpr unsigned kHostRegisterDeviceMap = 2;
constexpr unsigned kHostRegisterIoMemory = 4;
constexpr unsigned kHostRegisterReadOnly = 8;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventBlockingSync = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kEventInterprocess = 4;
constexpr int kCaptureModeGlobal = 0;
constexpr int kCaptureModeThreadLocal = 1;
constexpr int kCaptureModeRelaxed = 2;
constexpr int kCaptureStatusNone = 0;
constexpr int kCaptureStatusActive = 1;
constexpr int kNodeRunsHostFunction = 3;  // CUgraphNodeType
constexpr int kNodeAllocates = 10;
constexpr int kNodeFrees = 11;
constexpr int kMemoryHost = 1;  // CUmemorytype
constexpr int kMemoryDevice = 2;
constexpr int kMemoryArray = 3;
constexpr int kMemoryUnified = 4;
constexpr int kPinnedAllocation = 1;  // CUmemAllocationType
constexpr int kRecommendedGranularity = 1;
constexpr int kReadAndWrite = 3;    // CUmemAccess_flags
constexpr int kLocationDevice = 1;  // CUmemLocationType
constexpr int kLocationHost = 2;
constexpr int kLocationHostNuma = 3;
constexpr int kLocationHostNumaCurrent = 4;
constexpr int kOperandPointer = 1;  // CUmemcpy3DOperandType
constexpr int kOperandArray = 2;
constexpr int kSourceInStreamOrder = 1;  // CUmemcpySrcAccessOrder
constexpr int kSourceDuringCall = 2;
constexpr int kSourceAnyTime = 3;
constexpr int kCopyHostToHost = 0;  // cudaMemcpyKind
constexpr int kCopyHostToDevice = 1;
constexpr int kCopyDeviceToHost = 2;
constexpr int kCopyDeviceToDevice = 3;
constexpr int kCopyDefault = 4;
constexpr unsigned kArray3dLayered = 0x01;
constexpr unsigned kArray3dCubemap = 0x04;
constexpr unsigned kArray3dSparse = 0x40;
constexpr unsigned kArray3dDeferredMapping = 0x80;

// These stand for a default stream where a stream is asked for.
inline CUstream legacy_stream() { return reinterpret_cast<CUstream>(std::uintptr_t{1}); }
inline CUstream per_thread_stream() { return reinterpret_cast<CUstream>(std::uintptr_t{2}); }

// --- CUarray_format: the bytes of one channel, 0 where a texel is not made of whole channels (block compressed, video)
constexpr unsigned channel_bytes(int format) {
  switch (format) {
    case 0x01:
    case 0x08:
      return 1;  // 8-bit integers
    case 0x02:
    case 0x09:
    case 0x10:
      return 2;  // 16-bit integers, half
    case 0x03:
    case 0x0a:
    case 0x20:
      return 4;  // 32-bit integers, float
    default:
      return 0;
  }
}

// --- Structs of which a hook reads a field, laid out exactly
struct CUDA_ARRAY_DESCRIPTOR {
  std::size_t width, height;
  int format;
  unsigned channels;
};

struct CUDA_ARRAY3D_DESCRIPTOR {
  std::size_t width, height, depth;
  int format;
  unsigned channels, flags;
};

struct CUDA_MEMCPY2D {
  struct Side {
    std::size_t x_bytes, y;
    int memory_type;
    void* host;
    CUdeviceptr device;
    CUarray array;
    std::size_t pitch;
  } source, target;
  std::size_t width_bytes, height;
};

struct CUDA_MEMCPY3D {
  struct Side {
    std::size_t x_bytes, y, z, level;
    int memory_type;
    void* host;
    CUdeviceptr device;
    CUarray array;
    void* reserved;
    std::size_t pitch, height;
  } source, target;
  std::size_t width_bytes, height, depth;
};

struct CUmemLocation {
  int type, id;
};

struct CUmemcpyAttributes {
  int source_access_order;
  CUmemLocation source_hint, target_hint;
  unsigned flags;
};

struct CUlaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  CUstream stream;
  void* attributes;
  unsigned attribute_count;
};

// One copy of cuMemcpy3DBatchAsync; its extent is in elements, whose size only the arrays know.
struct CUDA_MEMCPY3D_BATCH_OP {
  struct Operand {
    int type;
    union {
      struct {
        CUdeviceptr address;
        std::size_t row_length, layer_height;
        CUmemLocation hint;
      } pointer;
      struct {
        CUarray array;
        std::size_t x, y, z;
      } array;
    };
  } source, target;
  std::size_t width, height, depth;
  int source_access_order;
  unsigned flags;
};

struct CUmemAllocationProp {
  int type, handle_types;
  CUmemLocation location;
  void* windows_metadata;
  unsigned char compression_type, rdma_capable;
  unsigned short usage;
  unsigned char reserved[4];
};

struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};

struct CUmemPoolProps {
  int type, handle_types;
  CUmemLocation location;
  void* windows_security;
  std::size_t bytes_max;
  unsigned short usage;
  unsigned char reserved[54];
};

struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps pool;
  const void* access;
  std::size_t access_count, bytes;
  CUdeviceptr address;
};

struct CUDA_HOST_NODE_PARAMS {
  CUhostFn function;
  void* argument;
};

struct CUgraphNodeParams {
  int type;
  int reserved[3];
  union {
    long long padding[29];
    CUDA_HOST_NODE_PARAMS host;  // and more
    CUDA_MEM_ALLOC_NODE_PARAMS allocation;
    CUdeviceptr freed;
  };
  long long reserved_too;
};

struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  int type;
  union {
    int descriptor;
    struct {
      void* handle;
      const void* name;
    } windows;
    const void* buffer_object;
  };
  unsigned long long bytes;
  unsigned flags, reserved[16];
};

struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  std::uint64_t flags;
  CUstream upload_stream;
  CUgraphNode error_node;
  int result;
};

struct CUipcMemHandle {
  char reserved[64];
};

struct cudaPitchedPtr {
  void* pointer;
  std::size_t pitch, width_bytes, height;
};

struct cudaExtent {
  std::size_t width, height, depth;
};

struct cudaChannelFormatDesc {
  int x, y, z, w, kind;
};

using cudaIpcMemHandle_t = CUipcMemHandle;

}  // namespace cistern::cuda
