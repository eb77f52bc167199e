// See shared_device.hpp. The calls are the hooks': what is exported is not recycled but really freed, and what is
// opened is accounted as imported.
#include "shim/library/shared_device.hpp"

#include <cstring>

#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/next.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/devices.hpp"

namespace cistern::library {
namespace {

using cuda::CUresult;
using cuda::driver;

constexpr unsigned kLetPeersIn = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
// The driver puts smaller blocks together into one of these, and shares it whole: no other memory is to be in it.
constexpr std::uint64_t kSharedWhole = 2 << 20;

bool driver_shares() {
  return cuda::driver_found() && driver().cuIpcGetMemHandle && driver().cuIpcOpenMemHandle_v2 &&
         driver().cuIpcCloseMemHandle && driver().cuMemGetAddressRange_v2 && driver().cuMemsetD8_v2;
}

CUresult clear(cuda::CUdeviceptr pointer, std::uint64_t bytes) {
  const CUresult answer = cuda::hook::cuMemsetD8_v2(pointer, 0, bytes);
  return answer == cuda::kSuccess ? driver().cuStreamSynchronize(nullptr) : answer;
}

CUresult export_to(SharedHeader& header, cuda::CUdeviceptr pointer) {
  cuda::CUdeviceptr base = 0;
  cuda::CUipcMemHandle handle{};
  CUresult answer = cuda::hook::cuIpcGetMemHandle(&handle, pointer);
  if (answer == cuda::kSuccess) answer = driver().cuMemGetAddressRange_v2(&base, nullptr, pointer);
  header.device_offset = pointer - base;
  static_assert(sizeof handle == sizeof header.device_handle);
  memcpy(header.device_handle, &handle, sizeof handle);
  return answer;
}

}  // namespace

cistern_status make_shared_device_memory(int device, SharedHeader& header, SharedDeviceMemory* memory) {
  const OnDevice here(any_context_is_current() ? kCurrentContext : device);
  if (!here) return status_of(here.answer());
  if (!driver_shares()) return CISTERN_NO_DRIVER;
  if (header.bytes > UINT64_MAX - kSharedWhole) return refused(cuda::kOutOfMemory, CISTERN_NO_MEMORY);
  const std::uint64_t bytes = (header.bytes + kSharedWhole - 1) / kSharedWhole * kSharedWhole;
  CUresult answer = driver().cuCtxGetCurrent(&memory->context);
  if (answer == cuda::kSuccess) answer = cuda::hook::cuMemAlloc_v2(&memory->pointer, bytes);
  if (answer != cuda::kSuccess) return status_of(answer);
  answer = clear(memory->pointer, bytes);
  if (answer == cuda::kSuccess) answer = export_to(header, memory->pointer);
  if (answer != cuda::kSuccess) cuda::hook::cuMemFree_v2(memory->pointer);
  return status_of(answer);
}

cistern_status free_shared_device_memory(const SharedDeviceMemory& memory) {
  const InContext there(memory.context);
  return status_of(there.answer() == cuda::kSuccess ? cuda::hook::cuMemFree_v2(memory.pointer) : there.answer());
}

cistern_status open_shared_device_memory(int device, const SharedHeader& header, SharedDeviceMemory* memory) {
  const OnDevice here(any_context_is_current() ? kCurrentContext : device);
  if (!here) return status_of(here.answer());
  if (!driver_shares()) return CISTERN_NO_DRIVER;
  cuda::CUipcMemHandle handle;
  memcpy(&handle, header.device_handle, sizeof handle);
  CUresult answer = driver().cuCtxGetCurrent(&memory->context);
  if (answer == cuda::kSuccess) answer = cuda::hook::cuIpcOpenMemHandle_v2(&memory->opened, handle, kLetPeersIn);
  memory->pointer = memory->opened + header.device_offset;
  return status_of(answer);
}

cistern_status close_shared_device_memory(const SharedDeviceMemory& memory) {
  const InContext there(memory.context);
  return status_of(there.answer() == cuda::kSuccess ? cuda::hook::cuIpcCloseMemHandle(memory.opened) : there.answer());
}

}  // namespace cistern::library
