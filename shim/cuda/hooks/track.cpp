// Memory that is never pooled: passed on, and accounted with its call site.
#include <algorithm>

#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/hooks/tracked.hpp"
#include "shim/cuda/stream_turn.hpp"

namespace cistern::cuda {

CUresult born(CUresult answer, const MadeBy& by, const void* handle, std::uint64_t bytes) {
  CudaState& s = state();
  const char* api = api_name(by.api);
  Context* context = s.contexts.current();
  if (answer != kSuccess) {
    if (answer == kOutOfMemory) {
      const int of_context = context ? context->device->ordinal : 0;
      const int device = by.device >= 0 ? by.device : of_context;
      add(s.account.counters(by.family, device).failed);
      record_failed(s, recorded(by.family, device), api, bytes);
      report_out_of_memory(s, api, by.family, device, bytes);
    }
    return note(s, answer);
  }
  if (!handle) return answer;
  Tracked record;
  record.family = by.family;
  record.context = context;
  record.bytes = bytes;
  record.api = api;
  record.object = by.object;
  if (by.device >= 0 && (!context || context->device->ordinal != by.device)) {
    record.context = nullptr;
    record.device = by.device;
  }
  record.site = site_of_call(s, record.api);
  s.account.track(handle, record);
  return answer;
}

namespace {

// A block of a range is no mapped memory for the program, as one of cuMemAlloc is not: its pieces have other blocks in
// them. Other addresses are passed on.
CUdeviceptr as_mapped_by_program(CUdeviceptr address) {
  const bool in_range = state().pools.ranges().containing(address);
  return in_range ? reinterpret_cast<CUdeviceptr>(unallocated_address()) : address;
}

// The size of another process's block, which only the driver knows; 0 where it may not be asked.
std::uint64_t imported_bytes(CUresult answer, const CUdeviceptr* pointer) {
  std::size_t bytes = 0;
  if (answer != kSuccess || !state().gate.open()) return 0;
  CUdeviceptr base = 0;
  return driver().cuMemGetAddressRange_v2(&base, &bytes, *pointer) == kSuccess ? bytes : 0;
}

template <class Pass>
CUresult died(const void* handle, Pass pass) {
  CudaState& s = state();
  Tracked record;
  const bool known = s.account.take(handle, record);
  const CUresult answer = note(s, pass());
  if (!known) return answer;
  answer == kSuccess || answer == kDeinitialized ? s.account.forget(handle, record) : s.account.restore(handle, record);
  return answer;
}

template <class Pass>
CUresult with_room(std::uint64_t bytes, Pass pass) {
  CudaState& s = state();
  return cuda::with_room(s, device_of(s.contexts.current()), bytes, pass);
}

// On a stream that captures it is an allocation node of a graph.
template <class Pass>
CUresult born_in_stream_order(CUdeviceptr* pointer, std::uint64_t bytes, CUstream stream, Zero zero, const char* api,
                              Pass pass) {
  const CUresult answer = with_room(bytes, pass);
  if (answer != kSuccess) return born(answer, {Family::async, "block", api}, nullptr, bytes);
  CudaState& s = state();
  const CUgraph graph = captured_graph(s, stream, zero == Zero::per_thread);
  if (!graph) return born(answer, {Family::async, "block", api}, as_handle(*pointer), bytes);
  born(answer, {Family::graph, "allocation node", api}, as_handle(*pointer), bytes);
  s.graph_memory.allocates(s, graph, *pointer, true);
  return answer;
}

std::uint64_t array_bytes(std::size_t width, std::size_t height, std::size_t depth, int format, unsigned channels) {
  const std::uint64_t texel = std::uint64_t{channel_bytes(format)} * channels;
  return texel * width * std::max<std::size_t>(height, 1) * std::max<std::size_t>(depth, 1);
}

std::uint64_t mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR& level0, unsigned levels) {
  std::uint64_t bytes = 0;
  CUDA_ARRAY3D_DESCRIPTOR level = level0;
  for (unsigned i = 0; i < std::min(levels, 32u); ++i) {
    bytes += array_bytes(level.width, level.height, level.depth, level.format, level.channels);
    for (std::size_t* side : {&level.width, &level.height, &level.depth})
      if (*side > 1) *side /= 2;
  }
  return bytes;
}

MadeBy made_by(const CUmemAllocationProp* properties, const char* api) {
  const auto& location = properties->location;
  if (location.type != kLocationDevice) return {Family::host_vmm, "physical memory", api};
  return {Family::vmm, "physical memory", api, location.id < kDevicesMax ? location.id : -1};
}

// A handle that another owner of the same memory gets: one record, several references.
bool referenced_again(CudaState& s, const void* handle) {
  bool known = false;
  s.account.with_tracked(handle, [&](Tracked* record) {
    if (record) known = true, ++record->references;
  });
  return known;
}
bool reference_dropped(CudaState& s, const void* handle) {
  bool remains = false;
  s.account.with_tracked(handle, [&](Tracked* record) {
    if (record && record->references > 1) remains = true, --record->references;
  });
  return remains;
}

}  // namespace

namespace hook {

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  const CUresult answer =
      with_room_restoring([&] { return driver().cuMemAllocManaged(pointer, bytes, flags); }, output(pointer));
  return born(answer, {Family::managed, "block", "cuMemAllocManaged"},
              answer == kSuccess ? as_handle(*pointer) : nullptr, bytes);
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return born_in_stream_order(pointer, bytes, stream, Zero::legacy, "cuMemAllocAsync",
                              [&] { return driver().cuMemAllocAsync(pointer, bytes, stream); });
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return born_in_stream_order(pointer, bytes, stream, Zero::per_thread, "cuMemAllocAsync",
                              [&] { return driver().cuMemAllocAsync_ptsz(pointer, bytes, stream); });
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return born_in_stream_order(pointer, bytes, stream, Zero::legacy, "cuMemAllocFromPoolAsync",
                              [&] { return driver().cuMemAllocFromPoolAsync(pointer, bytes, pool, stream); });
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return born_in_stream_order(pointer, bytes, stream, Zero::per_thread, "cuMemAllocFromPoolAsync",
                              [&] { return driver().cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream); });
}

// Blocks of a destroyed pool stay valid until they are freed.
CUresult cuMemPoolDestroy(CUmemoryPool pool) { return driver().cuMemPoolDestroy(pool); }

CUresult cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool pool, void* export_data) {
  const CUresult answer = driver().cuMemPoolImportPointer(pointer, pool, export_data);
  return born(answer, {Family::imported, "pool block", "cuMemPoolImportPointer"},
              answer == kSuccess ? as_handle(*pointer) : nullptr, 0);
}

CUresult cuArrayCreate_v2(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* description) {
  const CUDA_ARRAY_DESCRIPTOR of = description ? *description : CUDA_ARRAY_DESCRIPTOR{};
  const std::uint64_t bytes = array_bytes(of.width, of.height, 0, of.format, of.channels);
  const CUresult answer = with_room(bytes, [&] { return driver().cuArrayCreate_v2(handle, description); });
  return born(answer, {Family::array, "array", "cuArrayCreate_v2"}, answer == kSuccess ? *handle : nullptr, bytes);
}
CUresult cuArray3DCreate_v2(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* description) {
  const CUDA_ARRAY3D_DESCRIPTOR of = description ? *description : CUDA_ARRAY3D_DESCRIPTOR{};
  const std::uint64_t bytes = array_bytes(of.width, of.height, of.depth, of.format, of.channels);
  const CUresult answer = with_room(bytes, [&] { return driver().cuArray3DCreate_v2(handle, description); });
  return born(answer, {Family::array, "array", "cuArray3DCreate_v2"}, answer == kSuccess ? *handle : nullptr, bytes);
}
CUresult cuArrayDestroy(CUarray array) {
  return died(array, [&] { return driver().cuArrayDestroy(array); });
}
CUresult cuMipmappedArrayCreate(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR* description, unsigned levels) {
  const std::uint64_t bytes = description ? mipmap_bytes(*description, levels) : 0;
  const CUresult answer =
      with_room(bytes, [&] { return driver().cuMipmappedArrayCreate(handle, description, levels); });
  return born(answer, {Family::array, "mipmapped array", "cuMipmappedArrayCreate"},
              answer == kSuccess ? *handle : nullptr, bytes);
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return died(array, [&] { return driver().cuMipmappedArrayDestroy(array); });
}

CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return born(with_room_restoring([&] { return driver().cuMemHostRegister(pointer, bytes, flags); }),
              {Family::registered, "registered host memory", "cuMemHostRegister"}, pointer, bytes);
}
CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  return born(with_room_restoring([&] { return driver().cuMemHostRegister_v2(pointer, bytes, flags); }),
              {Family::registered, "registered host memory", "cuMemHostRegister_v2"}, pointer, bytes);
}
CUresult cuMemHostUnregister(void* pointer) {
  return died(pointer, [&] { return driver().cuMemHostUnregister(pointer); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  CudaState& s = state();
  const auto pass = [&] { return driver().cuMemCreate(handle, bytes, properties, flags); };
  if (!properties) return note(s, pass());
  const bool on_device = properties->location.type == kLocationDevice;
  const CUresult answer =
      on_device ? cuda::with_room(s, s.contexts.device(properties->location.id), bytes, pass) : pass();
  return born(answer, made_by(properties, "cuMemCreate"), answer == kSuccess ? as_handle(*handle) : nullptr, bytes);
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (reference_dropped(state(), as_handle(handle))) return driver().cuMemRelease(handle);
  return died(as_handle(handle), [&] { return driver().cuMemRelease(handle); });
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const CUresult answer = driver().cuMemRetainAllocationHandle(
      handle, reinterpret_cast<void*>(as_mapped_by_program(reinterpret_cast<CUdeviceptr>(address))));
  if (answer == kSuccess) referenced_again(state(), as_handle(*handle));
  return answer;
}
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  return driver().cuMemUnmap(as_mapped_by_program(pointer), bytes);
}
CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  return driver().cuMemAddressFree(as_mapped_by_program(pointer), bytes);
}
CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  return driver().cuMemSetAccess(as_mapped_by_program(pointer), bytes, access, count);
}
CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  // [measured] The driver's answer for memory of cuMemAlloc: no access that was set.
  if (const auto found = state().blocks.containing(pointer); found && found->range && flags && location)
    if (found->state.load() == BlockState::live) return *flags = 0, kSuccess;
  return driver().cuMemGetAccess(flags, location, as_mapped_by_program(pointer));
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shared_handle, int handle_type) {
  const CUresult answer = driver().cuMemImportFromShareableHandle(handle, shared_handle, handle_type);
  return born(answer, {Family::imported, "shared physical memory", "cuMemImportFromShareableHandle"},
              answer == kSuccess ? as_handle(*handle) : nullptr, 0);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  const CUresult answer = driver().cuIpcOpenMemHandle(pointer, handle, flags);
  if (answer == kSuccess && referenced_again(state(), as_handle(*pointer))) return answer;
  return born(answer, {Family::imported, "IPC memory", "cuIpcOpenMemHandle"},
              answer == kSuccess ? as_handle(*pointer) : nullptr, imported_bytes(answer, pointer));
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  const CUresult answer = driver().cuIpcOpenMemHandle_v2(pointer, handle, flags);
  if (answer == kSuccess && referenced_again(state(), as_handle(*pointer))) return answer;
  return born(answer, {Family::imported, "IPC memory", "cuIpcOpenMemHandle_v2"},
              answer == kSuccess ? as_handle(*pointer) : nullptr, imported_bytes(answer, pointer));
}
CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  if (reference_dropped(state(), as_handle(pointer))) return driver().cuIpcCloseMemHandle(pointer);
  return died(as_handle(pointer), [&] { return driver().cuIpcCloseMemHandle(pointer); });
}

CUresult cuImportExternalMemory(CUexternalMemory* memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* description) {
  const CUresult answer = driver().cuImportExternalMemory(memory, description);
  return born(answer, {Family::imported, "external memory", "cuImportExternalMemory"},
              answer == kSuccess ? *memory : nullptr, description ? description->bytes : 0);
}
CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  return died(memory, [&] { return driver().cuDestroyExternalMemory(memory); });
}

}  // namespace hook
}  // namespace cistern::cuda
