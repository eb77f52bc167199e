// Memory of other processes and devices. Handles of physical memory are exported and imported as descriptors of the
// memory's own file, which says at its end what it is. A descriptor of an address range is only a number: nothing reads
// it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/virtual_memory.hpp"

namespace simcuda {
namespace {

constexpr uint64_t kMagic = 0x7669727473696d63;

// The last page of the file.
struct Trailer {
  uint64_t magic;
  uint64_t bytes;
  int device;
  CUmemAllocationProp properties;
};
static_assert(sizeof(Trailer) <= kHostPage);

CUresult export_handle(int* descriptor, CUmemGenericAllocationHandle handle, unsigned type) {
  Locked lock = lock_driver();
  const PhysicalPointer memory = find_physical(lock, handle);
  if (!memory || !(static_cast<unsigned>(memory->properties.requestedHandleTypes) & type))
    return CUDA_ERROR_INVALID_VALUE;
  // [cited: pytorch/pytorch #173606] Memory is made for fabric handles, but their export is not permitted.
  if (type == kFabricHandle) return CUDA_ERROR_NOT_PERMITTED;
  *descriptor = fcntl(memory->own_file, F_DUPFD_CLOEXEC, 0);
  return *descriptor < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

bool read_trailer(int file, Trailer& trailer) {
  struct stat about {};
  return fstat(file, &about) == 0 && about.st_size > static_cast<off_t>(kHostPage) &&
         pread(file, &trailer, sizeof trailer, about.st_size - static_cast<off_t>(kHostPage)) == sizeof trailer &&
         trailer.magic == kMagic;
}

// [documented] The handle is a new one, though it is the same memory.
CUresult import_handle(CUmemGenericAllocationHandle* handle, int descriptor) {
  Trailer trailer{};
  if (!read_trailer(descriptor, trailer)) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  const auto memory = std::make_shared<PhysicalMemory>(trailer.bytes, trailer.properties);
  memory->device = trailer.device < 0 ? nullptr : find_device(trailer.device);
  memory->own_file = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (memory->own_file < 0) return CUDA_ERROR_UNKNOWN;
  *handle = publish(lock, memory);
  return CUDA_SUCCESS;
}

// [documented] All of it is one allocation, or mapped on one device.
bool is_all_there(Locked&, uintptr_t begin, size_t bytes) {
  const Allocation* const first = driver().allocations.find(begin);
  if (!first || (first->kind != MemoryKind::kDevice && first->kind != MemoryKind::kMapped)) return false;
  const int device = first->device;
  const uintptr_t end = begin + bytes;
  for (const Allocation* at = first; at && at->kind == first->kind && at->device == device;
       at = driver().allocations.find(at->begin + at->bytes))
    if (at->begin + at->bytes >= end) return true;
  return false;
}

}  // namespace

bool make_own_file(PhysicalMemory& memory) {
  const Trailer trailer{kMagic, memory.bytes, memory.device ? memory.device->ordinal : -1, memory.properties};
  memory.own_file = memfd_create("simcuda physical memory", MFD_CLOEXEC);
  return memory.own_file >= 0 && ftruncate(memory.own_file, static_cast<off_t>(memory.bytes + kHostPage)) == 0 &&
         pwrite(memory.own_file, &trailer, sizeof trailer, static_cast<off_t>(memory.bytes)) == sizeof trailer;
}

}  // namespace simcuda

using namespace simcuda;

// [documented] Only of the types that the memory was made for.
extern "C" CUresult cuMemExportToShareableHandle(void* answer, CUmemGenericAllocationHandle handle,
                                                 CUmemAllocationHandleType type, unsigned long long flags) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless);
  if (!answer || flags) return CUDA_ERROR_INVALID_VALUE;
  if (type != kDescriptorHandle && type != kFabricHandle) return CUDA_ERROR_NOT_SUPPORTED;
  return export_handle(static_cast<int*>(answer), handle, type);
}

// [documented] The descriptor is given as the pointer's value.
extern "C" CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shared,
                                                   CUmemAllocationHandleType type) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (type != kDescriptorHandle) return CUDA_ERROR_NOT_SUPPORTED;
  return import_handle(handle, static_cast<int>(reinterpret_cast<intptr_t>(shared)));
}

// [documented] For ranges of whole host pages. [assumed] The memory lives no longer than without the descriptor.
extern "C" CUresult cuMemGetHandleForAddressRange(void* answer, CUdeviceptr pointer, size_t bytes,
                                                  CUmemRangeHandleType type, unsigned long long flags) {
  SIMCUDA_CALL(kOrdinary);
  const uintptr_t begin = to_address(pointer);
  if (!answer || !bytes || begin % kHostPage || bytes % kHostPage || flags) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) return CUDA_ERROR_NOT_SUPPORTED;
  Locked lock = lock_driver();
  if (!is_all_there(lock, begin, bytes)) return CUDA_ERROR_INVALID_VALUE;
  int& descriptor = *static_cast<int*>(answer);
  descriptor = memfd_create("simcuda address range", MFD_CLOEXEC);
  return descriptor < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}
