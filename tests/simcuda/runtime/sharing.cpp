// Memory and events of other processes. The handles of both families are the same 64 bytes [documented].
#include <string.h>

#include "state.hpp"

using namespace simcuda_runtime;

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  return in_context(
      [&] { return DRIVER(cuIpcGetMemHandle, 4010)(reinterpret_cast<CUipcMemHandle*>(handle), address_of(pointer)); });
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  CUipcMemHandle driver_handle;
  memcpy(&driver_handle, &handle, sizeof driver_handle);
  return in_context(
      [&] { return DRIVER(cuIpcOpenMemHandle, 11000)(reinterpret_cast<CUdeviceptr*>(pointer), driver_handle, flags); });
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return in_context([&] { return DRIVER(cuIpcCloseMemHandle, 4010)(address_of(pointer)); });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return in_context(
      [&] { return DRIVER(cuIpcGetEventHandle, 4010)(reinterpret_cast<CUipcEventHandle*>(handle), event); });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  CUipcEventHandle driver_handle;
  memcpy(&driver_handle, &handle, sizeof driver_handle);
  return in_context([&] { return DRIVER(cuIpcOpenEventHandle, 4010)(event, driver_handle); });
}

}  // extern "C"
