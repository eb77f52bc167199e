// cuIpc*: the other process maps the same file, through /proc of the exporting process.
#include "tests/simcuda/driver/ipc.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/memory.hpp"

namespace simcuda {
namespace {

constexpr uint64_t kMemoryMagic = 0x6d656d2d73696d63, kEventMagic = 0x6576742d73696d63;

// What the 64 opaque bytes of a handle hold.
struct Handle {
  uint64_t magic;
  int process;
  int file;
  uint64_t offset;
  uint64_t bytes;
  uint64_t identity;
  int device;
};
static_assert(sizeof(Handle) <= sizeof(CUipcMemHandle) && sizeof(Handle) <= sizeof(CUipcEventHandle));

// Memory of another process, mapped as long as anybody holds it.
struct Mapping {
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (memory) munmap(memory, bytes);
  }
  void* memory = nullptr;
  size_t bytes = 0;
  int opened = 0;  // how often by cuIpcOpenMemHandle
};

// [documented] A handle that is opened again in the same context gives the same pointer and counts.
std::map<std::pair<Context*, std::pair<int, uint64_t>>, std::pair<uintptr_t, std::shared_ptr<Mapping>>>& opened() {
  static auto& all =
      *new std::map<std::pair<Context*, std::pair<int, uint64_t>>, std::pair<uintptr_t, std::shared_ptr<Mapping>>>;
  return all;
}

int open_file_of(const Handle& handle) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.file);
  return open(path, O_RDWR | O_CLOEXEC);
}

std::shared_ptr<Mapping> map_file(const Handle& handle, size_t& inside) {
  const int file = open_file_of(handle);
  if (file < 0) return nullptr;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = handle.offset / page * page;
  inside = handle.offset - begin;
  auto mapping = std::make_shared<Mapping>();
  mapping->bytes = round_up(inside + handle.bytes, page);
  void* memory = mmap(nullptr, mapping->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(begin));
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  mapping->memory = memory;
  return mapping;
}

CUresult open_memory(CUdeviceptr* pointer, const CUipcMemHandle& opaque, unsigned flags) {
  Handle handle;
  std::memcpy(&handle, &opaque, sizeof handle);
  if (!pointer || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (handle.magic != kMemoryMagic) return CUDA_ERROR_INVALID_HANDLE;
  // [documented by the runtime: cudaErrorDeviceUninitialized, the same number] Not in the process that exported it.
  if (handle.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  auto& [address, mapping] = opened()[{context, {handle.process, handle.identity}}];
  if (!mapping) {
    size_t inside = 0;
    mapping = map_file(handle, inside);
    if (!mapping) {
      opened().erase({context, {handle.process, handle.identity}});
      return CUDA_ERROR_MAP_FAILED;
    }
    address = to_address(mapping->memory) + inside;
    driver().allocations.insert({.begin = address,
                                 .bytes = handle.bytes,
                                 .kind = MemoryKind::kImported,
                                 .context = context,
                                 .device = context->device->ordinal,
                                 .owner = mapping});
  }
  ++mapping->opened;
  *pointer = address;
  return CUDA_SUCCESS;
}

}  // namespace

bool make_shared_state(Event& event) {
  event.shared_file = memfd_create("simcuda event", MFD_CLOEXEC);
  if (event.shared_file < 0 || ftruncate(event.shared_file, sizeof(InterprocessEvent)) != 0) return false;
  void* memory = mmap(nullptr, sizeof(InterprocessEvent), PROT_READ | PROT_WRITE, MAP_SHARED, event.shared_file, 0);
  if (memory == MAP_FAILED) return false;
  const int file = event.shared_file;
  event.shared = {static_cast<InterprocessEvent*>(memory), [file](InterprocessEvent* state) {
                    munmap(state, sizeof *state);
                    close(file);
                  }};
  return true;
}

}  // namespace simcuda

using namespace simcuda;

// [documented] For memory of cuMemAlloc. [assumed] An interior pointer gives the handle of its allocation.
extern "C" CUresult cuIpcGetMemHandle(CUipcMemHandle* opaque, CUdeviceptr pointer) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  const Allocation* allocation = driver().allocations.find(to_address(pointer));
  if (!opaque || !allocation || allocation->kind != MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  const AddressWindow& window = driver().devices[static_cast<size_t>(allocation->device)]->window;
  const Handle handle{
      kMemoryMagic,          getpid(),          window.file(), window.offset_of(allocation->begin), allocation->bytes,
      allocation->buffer_id, allocation->device};
  std::memset(opaque, 0, sizeof *opaque);
  std::memcpy(opaque, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  SIMCUDA_CALL(kUnsafe);
  return open_memory(pointer, handle, flags);
}

extern "C" CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  SIMCUDA_CALL(kUnsafe);
  return open_memory(pointer, handle, flags);
}

// [documented] Unmapped when it was closed as often as it was opened.
extern "C" CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  SIMCUDA_CALL(kUnsafe | kFrees);
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  for (auto entry = opened().begin(); entry != opened().end(); ++entry) {
    auto& [address, mapping] = entry->second;
    if (address != to_address(pointer) || entry->first.first != context) continue;
    if (--mapping->opened > 0) return CUDA_SUCCESS;
    const auto last = mapping;  // unmapped at the end of this block, when no work can use it any more
    opened().erase(entry);
    wait_for(lock, unfinished_in(lock, *context));
    driver().allocations.erase(to_address(pointer));
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuIpcGetEventHandle(CUipcEventHandle* opaque, CUevent event_handle) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  const auto event = find_event(lock, event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  // [documented] Only of events made with CU_EVENT_INTERPROCESS.
  if (!opaque || !event->shared || event->shared_file < 0) return CUDA_ERROR_INVALID_VALUE;
  const Handle handle{kEventMagic, getpid(), event->shared_file, 0, sizeof(InterprocessEvent), 0, 0};
  std::memset(opaque, 0, sizeof *opaque);
  std::memcpy(opaque, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuIpcOpenEventHandle(CUevent* event_handle, CUipcEventHandle opaque) {
  SIMCUDA_CALL(kOrdinary);
  Handle handle;
  std::memcpy(&handle, &opaque, sizeof handle);
  if (!event_handle) return CUDA_ERROR_INVALID_VALUE;
  if (handle.magic != kEventMagic) return CUDA_ERROR_INVALID_HANDLE;
  if (handle.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  size_t inside = 0;
  const auto mapping = map_file(handle, inside);
  if (!mapping) return CUDA_ERROR_MAP_FAILED;
  auto event = std::make_shared<Event>();
  event->context = context;
  event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  event->shared = {mapping, static_cast<InterprocessEvent*>(mapping->memory)};
  *event_handle = publish_event(lock, std::move(event));
  return CUDA_SUCCESS;
}
