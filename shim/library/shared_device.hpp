// Device memory of shared buffers: made, found and given up in the context that was current when it was made or found.
#pragma once
#include "backends/cuda/api.hpp"
#include "shim/library/shared_files.hpp"

namespace cistern::library {

struct SharedDeviceMemory {
  cuda::CUdeviceptr pointer = 0;
  cuda::CUdeviceptr opened = 0;  // what the driver gave for the handle of another process; 0: of this process
  cuda::CUcontext context = nullptr;
};

// Of this process, and 0: its handle, and where in it, goes into the header.
cistern_status make_shared_device_memory(int device, SharedHeader& header, SharedDeviceMemory* memory);
cistern_status free_shared_device_memory(const SharedDeviceMemory& memory);

// Another process's.
cistern_status open_shared_device_memory(int device, const SharedHeader& header, SharedDeviceMemory* memory);
cistern_status close_shared_device_memory(const SharedDeviceMemory& memory);

}  // namespace cistern::library
