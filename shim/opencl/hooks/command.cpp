// OpenCL commands: which queue uses which memory, up to which command; and what the program itself waited for.
// A use is noted after the real enqueue returned and before the program learns of it: a buffer can't be released
// legally in between.
#include <algorithm>
#include <span>

#include "shim/opencl/hooks/command.hpp"
#include "shim/opencl/hooks/copied.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/hooks/misuse.hpp"
#include "shim/process/misuse.hpp"

namespace cistern::opencl {

void note_event(const cl_event* event, CommandEvent&& command) {
  if (!event || !*event) return;
  OpenclState& s = state();
  add(s.counted_created[static_cast<int>(CountedType::event)]);
  s.counted.put(*event, {.type = CountedType::event, .site = site_of_call(s, "event"), .command = std::move(command)});
}

ForeignCommand::ForeignCommand(OpenclState& s, const std::shared_ptr<QueueClock>& clock, const WaitList& wait) {
  if (!clock) return;
  bool foreign = wait.others;
  for (cl_uint i = 0; wait.events && i < wait.count && !foreign; ++i)
    foreign = s.counted.with(wait.events[i],
                             [&](const Counted* record) { return !record || record->command.clock != clock; });
  if (!foreign) return;
  clock_ = clock.get();
  clock_->begin_foreign();
}

namespace {

constexpr std::size_t kUsesMax = 64;

// The newest use of each queue stands for all before it. Those that have ended go, and those whose end will not be
// known any more leave a mark: what a buffer knows is bounded, however many queues come and go.
// `ended`: what goes, whose clock may end with it, which releases its markers: not under the record's lock.
void add_use(MemoryRecord& record, const std::shared_ptr<QueueClock>& clock, std::uint64_t number, Vector<Use>& ended) {
  bool added = false, pending = false;
  std::erase_if(record.uses, [&](Use& use) {
    const Settled known = use.clock->known(use.number);
    pending = pending || known != Settled::yes;
    if (use.clock == clock) return use.number = std::max(use.number, number), added = true, false;
    record.end_unknown = record.end_unknown || known == Settled::never;
    if (known == Settled::no) return false;
    ended.push_back(std::move(use));
    return true;
  });
  if (!added && record.uses.size() >= kUsesMax) record.end_unknown = true;
  if (!added && !record.end_unknown) record.uses.push_back({clock, number});
  record.pending_uses = pending ? record.pending_uses + 1 : 1;
}

}  // namespace

void note_use(OpenclState& s, const void* memory, const std::shared_ptr<QueueClock>& clock, std::uint64_t number) {
  while (memory) {
    const void* parent = nullptr;
    SiteId created = 0, released = 0;
    bool after_release = false;
    std::uint64_t taken_first = 0;
    Vector<Use> ended;
    s.memory.with(memory, [&](MemoryRecord* record) {
      if (!record) return;
      parent = record->parent;
      if (record->first_use == FirstUse::expected) taken_first = record->bytes;
      record->first_use = FirstUse::none;
      // An argument that an unknown function has replaced looks the same.
      if (record->state == MemoryState::pooled && !s.unknown_arguments.load(std::memory_order_relaxed)) {
        after_release = true;
        created = record->site, released = record->released_site;
      }
      if (!record->recyclable) return;
      ++record->uses_now;
      if (clock)
        add_use(*record, clock, number, ended);
      else
        record->end_unknown = true;
    });
    if (taken_first) s.first_uses.begun(clock, number, taken_first);
    if (after_release) report_use_after_release(memory, created, released);
    memory = parent;
  }
}

void note_first_use(OpenclState& s, const void* memory) {
  while (memory) {
    const void* parent = nullptr;
    std::uint64_t taken = 0;
    s.memory.with(memory, [&](MemoryRecord* record) {
      if (!record) return;
      parent = record->parent;
      if (record->first_use == FirstUse::expected) taken = record->bytes;
      record->first_use = FirstUse::none;
    });
    s.first_uses.expect_no_more(taken);
    memory = parent;
  }
}

namespace {

// What a kernel's arguments name now; clSetKernelArg is not thread-safe per kernel, so this is what the enqueue sees.
Vector<const void*> kernel_memory(cl_kernel kernel) {
  return state().kernels.with(kernel,
                              [](Kernel* record) { return record ? record->arguments : Vector<const void*>{}; });
}

void note_argument(cl_kernel kernel, cl_uint index, const void* maybe_memory) {
  state().kernels.with(kernel, [&](Kernel* record) {
    if (!record) return;
    if (record->arguments.size() <= index) record->arguments.resize(index + 1);
    record->arguments[index] = maybe_memory;
  });
}

// A pointer replaces the memory object that was set before. Kernels may meet the program behind it.
cl_int note_pointer_set(cl_kernel kernel, cl_uint index, cl_int error) {
  if (error == kSuccess) end_order_everywhere(state(), Waited::shared_memory);
  if (error == kSuccess) note_argument(kernel, index, nullptr);
  return error;
}

template <class Real, class Pointer>
cl_int set_by_extension(const char* api, cl_kernel kernel, cl_uint index, Pointer value) {
  return note_pointer_set(kernel, index, extension<Real>(api, kernel)(kernel, index, value));
}

std::span<const cl_mem> listed(const cl_mem* memory, cl_uint count) { return {memory, memory ? count : 0}; }

bool is_written(cl_bitfield map_flags) { return map_flags & (kMapWrite | kMapWriteInvalidate); }

void note_mapped(cl_mem memory, cl_bitfield flags, void* mapped, std::uint64_t bytes) {
  state().memory.with(memory, [](MemoryRecord* record) {
    if (record) record->mapped_once = true;
  });
  state().host_ranges.change(reinterpret_cast<std::uintptr_t>(mapped), bytes, [&](HostRange& range) {
    ++range.maps;
    if (is_written(flags)) ++range.writes, range.written_bytes = bytes;
  });
}

// Bytes that an unmap takes back: 0 where it was mapped to be read.
std::uint64_t take_written(const void* mapped) {
  std::uint64_t bytes = 0;
  state().host_ranges.erase_if(reinterpret_cast<std::uintptr_t>(mapped), [&](HostRange& range) {
    if (range.writes) --range.writes, bytes = range.written_bytes;
    return false;
  });
  return bytes;
}

// The driver refused the unmap: the next one takes them back.
void leave_written(const void* mapped) {
  state().host_ranges.erase_if(reinterpret_cast<std::uintptr_t>(mapped), [](HostRange& range) {
    ++range.writes;
    return false;
  });
}

// While memory is mapped commands may look at what the program does with it: foreign, until it is unmapped.
// Mapping commands say their error through `errcode`, and map(error) through a pointer that is never null.
// `bytes()` says how much was mapped.
struct MapCall {
  const char* api;
  cl_mem memory;
  bool blocking;
  cl_bitfield flags;
};
template <class Map, class Bytes>
void* map_command(cl_command_queue queue, const MapCall& call, const WaitList& wait, const cl_event* event,
                  cl_int* errcode, Map map, Bytes bytes) {
  const std::uint64_t begin_ns = nanoseconds_since_start();
  void* mapped = nullptr;
  cl_int own = kSuccess;
  cl_int* error = errcode ? errcode : &own;
  if (const cl_int refused = refuse_kept(call.api, queue, {call.memory})) [[unlikely]]
    return *error = refused, nullptr;
  const std::shared_ptr<QueueClock> clock = clock_of(state(), queue);
  if (clock) clock->begin_foreign();
  command(queue, call.blocking, wait, event, std::span<const cl_mem>(&call.memory, 1), [&] {
    mapped = map(error);
    return mapped ? kSuccess : *error;
  });
  const std::uint64_t mapped_bytes = mapped ? bytes() : 0;
  if (mapped) note_mapped(call.memory, call.flags, mapped, mapped_bytes);
  Copied copying(call.api, queue, call.blocking, event, mapped ? kSuccess : *error,
                 nanoseconds_since_start() - begin_ns, {});
  copying.map(call.flags, mapped_bytes);
  if (clock && !mapped) clock->end_foreign(0);
  return mapped;
}

}  // namespace

namespace hook {

#define OPENCL_ENQUEUE(slot, name, parameters, arguments, blocking, ...)             \
  cl_int name parameters {                                                           \
    const std::initializer_list<const void*> used = {__VA_ARGS__};                   \
    if (const cl_int refused = refuse_kept(#name, queue, used)) [[unlikely]]         \
      return refused;                                                                \
    return command(queue, blocking, {wait_count, wait_list}, event, std::span(used), \
                   [&] { return next().name arguments; });                           \
  }
#include "shim/symbols/opencl.def"

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t* global_offset,
                              const size_t* global_size, const size_t* local_size, cl_uint wait_count,
                              const cl_event* wait_list, cl_event* event) {
  const Vector<const void*> used = kernel_memory(kernel);
  return command(queue, false, {wait_count, wait_list}, event, std::span(used), [&] {
    return next().clEnqueueNDRangeKernel(queue, kernel, dimensions, global_offset, global_size, local_size, wait_count,
                                         wait_list, event);
  });
}

cl_int clEnqueueTask(cl_command_queue queue, cl_kernel kernel, cl_uint wait_count, const cl_event* wait_list,
                     cl_event* event) {
  const Vector<const void*> used = kernel_memory(kernel);
  return command(queue, false, {wait_count, wait_list}, event, std::span(used),
                 [&] { return next().clEnqueueTask(queue, kernel, wait_count, wait_list, event); });
}

cl_int clEnqueueNativeKernel(cl_command_queue queue, cl_native_function function, void* arguments,
                             size_t arguments_size, cl_uint memory_count, const cl_mem* memory,
                             const void** memory_locations, cl_uint wait_count, const cl_event* wait_list,
                             cl_event* event) {
  return command(queue, false, {wait_count, wait_list, true}, event, listed(memory, memory_count), [&] {
    return next().clEnqueueNativeKernel(queue, function, arguments, arguments_size, memory_count, memory,
                                        memory_locations, wait_count, wait_list, event);
  });
}

void* clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_uint blocking, cl_bitfield flags, size_t offset,
                         size_t size, cl_uint wait_count, const cl_event* wait_list, cl_event* event, cl_int* errcode) {
  const auto map = [&](cl_int* error) {
    return next().clEnqueueMapBuffer(queue, buffer, blocking, flags, offset, size, wait_count, wait_list, event, error);
  };
  return map_command(queue, {"clEnqueueMapBuffer", buffer, blocking != 0, flags}, {wait_count, wait_list}, event,
                     errcode, map, [&] { return size; });
}

void* clEnqueueMapImage(cl_command_queue queue, cl_mem image, cl_uint blocking, cl_bitfield flags, const size_t* origin,
                        const size_t* region, size_t* row_pitch, size_t* slice_pitch, cl_uint wait_count,
                        const cl_event* wait_list, cl_event* event, cl_int* errcode) {
  const auto map = [&](cl_int* error) {
    return next().clEnqueueMapImage(queue, image, blocking, flags, origin, region, row_pitch, slice_pitch, wait_count,
                                    wait_list, event, error);
  };
  const MapCall call{"clEnqueueMapImage", image, blocking != 0, flags};
  return map_command(queue, call, {wait_count, wait_list}, event, errcode, map, [&] {
    const std::size_t slices = slice_pitch && *slice_pitch ? *slice_pitch * (region[2] - 1) : 0;
    return slices + *row_pitch * region[1];
  });
}

cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem memory, void* mapped, cl_uint wait_count,
                               const cl_event* wait_list, cl_event* event) {
  const std::uint64_t written = take_written(mapped);
  const cl_int error = command(queue, false, {wait_count, wait_list}, event, std::span<const cl_mem>(&memory, 1), [&] {
    return next().clEnqueueUnmapMemObject(queue, memory, mapped, wait_count, wait_list, event);
  });
  if (written) Copied("clEnqueueUnmapMemObject", queue, false, event, error, 0, {}).unmap(written);
  if (error != kSuccess) {
    if (written) leave_written(mapped);
    return error;
  }
  if (const std::shared_ptr<QueueClock> clock = clock_of(state(), queue)) clock->end_foreign(clock->enqueued());
  state().host_ranges.erase_if(reinterpret_cast<std::uintptr_t>(mapped), [](HostRange& range) {
    if (range.maps) --range.maps;
    return !range.maps && !range.allocated;
  });
  return error;
}

cl_int clEnqueueMarker(cl_command_queue queue, cl_event* event) {
  return command(queue, false, {}, event, std::span<const cl_mem>(),
                 [&] { return next().clEnqueueMarker(queue, event); });
}

cl_int clEnqueueWaitForEvents(cl_command_queue queue, cl_uint wait_count, const cl_event* wait_list) {
  return command(queue, false, {wait_count, wait_list}, nullptr, std::span<const cl_mem>(),
                 [&] { return next().clEnqueueWaitForEvents(queue, wait_count, wait_list); });
}

cl_int clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint memory_count, const cl_mem* memory, cl_bitfield flags,
                                  cl_uint wait_count, const cl_event* wait_list, cl_event* event) {
  return command(queue, false, {wait_count, wait_list}, event, listed(memory, memory_count), [&] {
    return next().clEnqueueMigrateMemObjects(queue, memory_count, memory, flags, wait_count, wait_list, event);
  });
}

// Whoever shares the objects has commands of his own.
#define SHARED_OBJECTS(name)                                                                                \
  cl_int name(cl_command_queue queue, cl_uint memory_count, const cl_mem* memory, cl_uint wait_count,       \
              const cl_event* wait_list, cl_event* event) {                                                 \
    return command(queue, false, {wait_count, wait_list, true}, event, listed(memory, memory_count),        \
                   [&] { return next().name(queue, memory_count, memory, wait_count, wait_list, event); }); \
  }
SHARED_OBJECTS(clEnqueueAcquireGLObjects)
SHARED_OBJECTS(clEnqueueReleaseGLObjects)
SHARED_OBJECTS(clEnqueueAcquireEGLObjectsKHR)
SHARED_OBJECTS(clEnqueueReleaseEGLObjectsKHR)
#undef SHARED_OBJECTS

cl_int clFinish(cl_command_queue queue) {
  Transfers::waits(queue);
  const std::shared_ptr<QueueClock> clock = clock_of(state(), queue);
  const std::uint64_t before = clock ? clock->enqueued() : 0;
  const cl_int error = counted_wait(state(), "clFinish", [&] { return next().clFinish(queue); });
  if (clock && error == kSuccess) clock->note_completed_up_to(before);
  return error;
}

// The commands are looked up before: while this call waits another thread may release the events.
cl_int clWaitForEvents(cl_uint count, const cl_event* events) {
  OpenclState& s = state();
  if (events && count) Transfers::waits(events[count - 1]);
  Vector<CommandEvent> waited;
  for (cl_uint i = 0; events && i < count; ++i)
    s.counted.with(events[i], [&](const Counted* record) {
      if (record && record->command.clock) waited.push_back(record->command);
    });
  const cl_int error = counted_wait(state(), "clWaitForEvents", [&] { return next().clWaitForEvents(count, events); });
  if (error != kSuccess) return error;
  for (const CommandEvent& command : waited)
    if (command.clock->in_order()) command.clock->note_completed_up_to(command.number);
  return error;
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  const cl_int error = next().clSetKernelArg(kernel, index, size, value);
  if (error != kSuccess) return error;
  // Any 8 bytes may be a memory object; whether they are is looked up when the kernel is enqueued.
  note_argument(kernel, index, size == sizeof(cl_mem) && value ? *static_cast<const void* const*>(value) : nullptr);
  return error;
}

cl_int clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint index, const void* value) {
  return note_pointer_set(kernel, index, next().clSetKernelArgSVMPointer(kernel, index, value));
}

cl_int clSetKernelExecInfo(cl_kernel kernel, cl_uint name, size_t size, const void* value) {
  const cl_int error = next().clSetKernelExecInfo(kernel, name, size, value);
  if (error == kSuccess) end_order_everywhere(state(), Waited::shared_memory);
  return error;
}

cl_int clSetKernelArgSVMPointerARM(cl_kernel kernel, cl_uint index, const void* value) {
  return set_by_extension<decltype(&clSetKernelArgSVMPointerARM)>("clSetKernelArgSVMPointerARM", kernel, index, value);
}

cl_int clSetKernelArgMemPointerINTEL(cl_kernel kernel, cl_uint index, const void* value) {
  return set_by_extension<decltype(&clSetKernelArgMemPointerINTEL)>("clSetKernelArgMemPointerINTEL", kernel, index,
                                                                    value);
}

cl_int clSetKernelArgDevicePointerEXT(cl_kernel kernel, cl_uint index, std::uint64_t value) {
  return set_by_extension<decltype(&clSetKernelArgDevicePointerEXT)>("clSetKernelArgDevicePointerEXT", kernel, index,
                                                                     value);
}

}  // namespace hook
}  // namespace cistern::opencl
