// See sharing.hpp. The calls are the hooks': what is exported is not recycled but really freed, and what is opened is
// accounted as imported.
#include "shim/cuda/library/sharing.hpp"

#include <cstring>

#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/library/answers.hpp"
#include "shim/cuda/library/devices.hpp"
#include "shim/cuda/next.hpp"
#include "shim/library/shared_files.hpp"

namespace cistern::cuda {
namespace {

using library::SharedHeader;
using library::SharedMemory;

constexpr unsigned kLetPeersIn = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
// The driver puts smaller blocks together into one of these, and shares it whole: no other memory is to be in it.
constexpr std::uint64_t kSharedWhole = 2 << 20;

bool driver_shares() {
  return driver_found() && driver().cuIpcGetMemHandle && driver().cuIpcOpenMemHandle_v2 &&
         driver().cuIpcCloseMemHandle && driver().cuMemGetAddressRange_v2 && driver().cuMemsetD8_v2;
}

CUresult clear(CUdeviceptr pointer, std::uint64_t bytes) {
  const CUresult answer = hook::cuMemsetD8_v2(pointer, 0, bytes);
  return answer == kSuccess ? driver().cuStreamSynchronize(nullptr) : answer;
}

CUresult export_to(SharedHeader& header, CUdeviceptr pointer) {
  CUdeviceptr base = 0;
  CUipcMemHandle handle{};
  CUresult answer = hook::cuIpcGetMemHandle(&handle, pointer);
  if (answer == kSuccess) answer = driver().cuMemGetAddressRange_v2(&base, nullptr, pointer);
  header.device_offset = pointer - base;
  static_assert(sizeof handle == sizeof header.device_handle);
  memcpy(header.device_handle, &handle, sizeof handle);
  return answer;
}

InContext context_of(const SharedMemory& memory) { return InContext(static_cast<CUcontext>(memory.context)); }

cistern_status make(int device, SharedHeader& header, SharedMemory* memory) {
  const OnDevice here(CurrentOr{device});
  if (!here) return status_of(here.answer());
  if (!driver_shares()) return CISTERN_NO_DRIVER;
  if (header.bytes > UINT64_MAX - kSharedWhole) return library::refused(kOutOfMemory, CISTERN_NO_MEMORY);
  const std::uint64_t bytes = (header.bytes + kSharedWhole - 1) / kSharedWhole * kSharedWhole;
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  CUresult answer = driver().cuCtxGetCurrent(&context);
  if (answer == kSuccess) answer = hook::cuMemAlloc_v2(&pointer, bytes);
  if (answer != kSuccess) return status_of(answer);
  answer = clear(pointer, bytes);
  if (answer == kSuccess) answer = export_to(header, pointer);
  if (answer != kSuccess) hook::cuMemFree_v2(pointer);
  *memory = {.address = static_cast<std::uintptr_t>(pointer), .context = context};
  return status_of(answer);
}

cistern_status give_up(const SharedMemory& memory) {
  const InContext there = context_of(memory);
  return status_of(there.answer() == kSuccess ? hook::cuMemFree_v2(memory.address) : there.answer());
}

cistern_status open_other(int device, const SharedHeader& header, SharedMemory* memory) {
  const OnDevice here(CurrentOr{device});
  if (!here) return status_of(here.answer());
  if (!driver_shares()) return CISTERN_NO_DRIVER;
  CUipcMemHandle handle;
  memcpy(&handle, header.device_handle, sizeof handle);
  CUcontext context = nullptr;
  CUdeviceptr opened = 0;
  CUresult answer = driver().cuCtxGetCurrent(&context);
  if (answer == kSuccess) answer = hook::cuIpcOpenMemHandle_v2(&opened, handle, kLetPeersIn);
  *memory = {.address = static_cast<std::uintptr_t>(opened + header.device_offset),
             .opened = static_cast<std::uintptr_t>(opened),
             .context = context};
  return status_of(answer);
}

cistern_status close_other(const SharedMemory& memory) {
  const InContext there = context_of(memory);
  return status_of(there.answer() == kSuccess ? hook::cuIpcCloseMemHandle(memory.opened) : there.answer());
}

}  // namespace

extern constexpr library::KindSharing sharing = {make, give_up, open_other, close_other};

}  // namespace cistern::cuda
