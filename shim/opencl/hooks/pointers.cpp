// Memory that is known by a pointer, not as a memory object: shared virtual memory, and the unified shared memory of
// Intel's extension. Never pooled; passed on, and accounted with its call site.
#include "shim/opencl/hooks/account.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/hooks/passed_with_room.hpp"

namespace cistern::opencl {
namespace {

void note_range(const void* pointer, std::size_t bytes) {
  if (pointer)
    state().host_ranges.change(reinterpret_cast<std::uintptr_t>(pointer), bytes,
                               [](HostRange& range) { range.allocated = true; });
}

// `rest`: what stands between the context and `errcode` in the extension's function.
template <class Real, class... Rest>
void* allocate_usm(const char* api, cl_context context, std::size_t bytes, cl_int* errcode, Rest... rest) {
  auto real = extension<Real>(api, context);
  end_order_everywhere(state(), Waited::shared_memory);
  void* pointer =
      create_with_room({api, context, bytes}, errcode, [&](cl_int* error) { return real(context, rest..., error); });
  note_range(pointer, bytes);
  return account_created(pointer, {.kind = MemoryKind::usm, .context = context, .bytes = bytes, .api = api},
                         Unpooled::usm);
}

// Taken out before the real call: another thread may get the same address at once.
std::optional<MemoryRecord> take_record(const void* pointer) {
  OpenclState& s = state();
  MemoryRecord freed;
  const auto is_pointer = [](const MemoryRecord& record) {
    return record.kind == MemoryKind::svm || record.kind == MemoryKind::usm;
  };
  if (!pointer || !s.memory.take_if(pointer, freed, is_pointer)) return std::nullopt;
  s.host_ranges.erase(reinterpret_cast<std::uintptr_t>(pointer));
  return freed;
}

void account_freed(const void* pointer, const MemoryRecord& freed) {
  OpenclState& s = state();
  add(s.counters.driver_frees);
  if (freed.inherited) return;
  s.counters.block_died(as_counted(freed, pointer));
  recording::record_free(kRecorded, pointer);
}
void account_freed(const void* pointer) {
  if (const auto freed = take_record(pointer)) account_freed(pointer, *freed);
}

// What the driver refuses to free is alive.
template <class Real>
cl_int free_usm(const char* api, cl_context context, void* pointer) {
  std::optional<MemoryRecord> record = take_record(pointer);
  const cl_int error = extension<Real>(api, context)(context, pointer);
  if (!record) return error;
  if (error == kSuccess) return account_freed(pointer, *record), error;
  note_range(pointer, record->bytes);
  state().memory.put(pointer, std::move(*record));
  return error;
}

}  // namespace

namespace hook {

// It does not say why it fails.
void* clSVMAlloc(cl_context context, cl_bitfield flags, size_t size, cl_uint alignment) {
  end_order_everywhere(state(), Waited::shared_memory);
  void* pointer = create_with_room({nullptr, context, size}, nullptr, [&](cl_int* error) {
    *error = kMemObjectAllocationFailure;
    return next().clSVMAlloc(context, flags, size, alignment);
  });
  note_range(pointer, size);
  return account_created(pointer, {.kind = MemoryKind::svm, .context = context, .bytes = size, .api = "clSVMAlloc"},
                         Unpooled::svm);
}

void clSVMFree(cl_context context, void* pointer) {
  account_freed(pointer);
  next().clSVMFree(context, pointer);
}

cl_int clEnqueueSVMFree(cl_command_queue queue, cl_uint pointer_count, void** pointers, cl_svm_notify notify,
                        void* user_data, cl_uint wait_count, const cl_event* wait_list, cl_event* event) {
  const cl_int error =
      next().clEnqueueSVMFree(queue, pointer_count, pointers, notify, user_data, wait_count, wait_list, event);
  if (error != kSuccess) return error;
  note_event(event);
  // With a callback the program frees the pointers itself, through whatever it calls there.
  for (cl_uint i = 0; pointers && !notify && i < pointer_count; ++i) account_freed(pointers[i]);
  return error;
}

void* clHostMemAllocINTEL(cl_context context, const cl_bitfield* properties, size_t size, cl_uint alignment,
                          cl_int* errcode) {
  return allocate_usm<decltype(&clHostMemAllocINTEL)>("clHostMemAllocINTEL", context, size, errcode, properties, size,
                                                      alignment);
}

void* clDeviceMemAllocINTEL(cl_context context, cl_device_id device, const cl_bitfield* properties, size_t size,
                            cl_uint alignment, cl_int* errcode) {
  return allocate_usm<decltype(&clDeviceMemAllocINTEL)>("clDeviceMemAllocINTEL", context, size, errcode, device,
                                                        properties, size, alignment);
}

void* clSharedMemAllocINTEL(cl_context context, cl_device_id device, const cl_bitfield* properties, size_t size,
                            cl_uint alignment, cl_int* errcode) {
  return allocate_usm<decltype(&clSharedMemAllocINTEL)>("clSharedMemAllocINTEL", context, size, errcode, device,
                                                        properties, size, alignment);
}

cl_int clMemFreeINTEL(cl_context context, void* pointer) {
  return free_usm<decltype(&clMemFreeINTEL)>("clMemFreeINTEL", context, pointer);
}

cl_int clMemBlockingFreeINTEL(cl_context context, void* pointer) {
  return free_usm<decltype(&clMemBlockingFreeINTEL)>("clMemBlockingFreeINTEL", context, pointer);
}

}  // namespace hook
}  // namespace cistern::opencl
