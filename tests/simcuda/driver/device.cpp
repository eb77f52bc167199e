// cuDevice*: two devices by default that say they are of compute capability 9.0.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/settings.hpp"

namespace simcuda {

Device* find_device(CUdevice ordinal) {
  const auto& devices = driver().devices;
  return ordinal < 0 || static_cast<size_t>(ordinal) >= devices.size() ? nullptr
                                                                       : devices[static_cast<size_t>(ordinal)].get();
}

namespace {

struct AttributeRow {
  CUdevice_attribute attribute;
  int value;
};

// [assumed] As an H100 or H200 says; what is not listed is 0. Nothing here may promise what is refused.
constexpr AttributeRow kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 52428800},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1},
};

// CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, which older headers lack.
constexpr auto kFabricSupported = static_cast<CUdevice_attribute>(128);

int attribute_of(const Device& device, CUdevice_attribute attribute) {
  switch (attribute) {
    // [assumed] Each device sits in a slot of its own.
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return device.ordinal + 1;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
      return settings.coherent != 0;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return settings.vmm > 0;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return settings.vmm > 0;
    case kFabricSupported:
      return settings.vmm > 0 && settings.fabric;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
      return settings.rdma != 0;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
      return settings.vmm > 0 && settings.rdma;
    default:
      break;
  }
  for (const AttributeRow& row : kAttributes)
    if (row.attribute == attribute) return row.value;
  return 0;
}

std::string bus_id_of(const Device& device) {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", (device.ordinal + 1) & 0xff);
  return text;
}

void make_uuid(const Device& device, CUuuid* uuid) {
  std::memset(uuid, 0, sizeof *uuid);
  std::memcpy(uuid->bytes, "simcuda", 7);
  uuid->bytes[15] = static_cast<char>(device.ordinal + 1);
}

}  // namespace
}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SIMCUDA_CALL(kContextless);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!find_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGetCount(int* count) {
  SIMCUDA_CALL(kContextless);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(driver().devices.size());
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  SIMCUDA_CALL(kContextless);
  if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!find_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(length), "Simulated CUDA device %d", ordinal);
  return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid* uuid, CUdevice ordinal) {
  const Device* device = find_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  make_uuid(*device, uuid);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  SIMCUDA_CALL(kContextless);
  return get_uuid(uuid, device);
}

extern "C" CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  SIMCUDA_CALL(kContextless);
  return get_uuid(uuid, device);
}

extern "C" CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  SIMCUDA_CALL(kContextless);
  const Device* device = find_device(ordinal);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device->bytes;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  SIMCUDA_CALL(kContextless);
  const Device* device = find_device(ordinal);
  if (!value || attribute <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute_of(*device, attribute);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  SIMCUDA_CALL(kContextless);
  if (!find_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *major = 9;
  *minor = 0;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
  SIMCUDA_CALL(kContextless);
  const Device* device = find_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(text, static_cast<size_t>(length), "%s", bus_id_of(*device).c_str());
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGetByPCIBusId(CUdevice* ordinal, const char* text) {
  SIMCUDA_CALL(kContextless);
  for (const auto& device : driver().devices) {
    if (bus_id_of(*device) != text) continue;
    *ordinal = device->ordinal;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

// [assumed] Any two devices reach each other.
extern "C" CUresult cuDeviceCanAccessPeer(int* answer, CUdevice device, CUdevice peer) {
  SIMCUDA_CALL(kContextless);
  if (!answer) return CUDA_ERROR_INVALID_VALUE;
  if (!find_device(device) || !find_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *answer = device != peer;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device,
                                            CUdevice peer) {
  SIMCUDA_CALL(kContextless);
  // [documented] Not valid for a device and itself.
  if (!find_device(device) || !find_device(peer) || device == peer) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
  return CUDA_SUCCESS;
}

// [documented] 704 when it is enabled already, 705 when it is not, 201 for a context of the same device [assumed].
extern "C" CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  SIMCUDA_CALL(kOrdinary);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  Context* peer = find_context(lock, handle);
  if (!context) return result;
  if (!peer || peer->device == context->device) return CUDA_ERROR_INVALID_CONTEXT;
  return context->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

extern "C" CUresult cuCtxDisablePeerAccess(CUcontext handle) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  return context->peers.erase(find_context(lock, handle)) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
