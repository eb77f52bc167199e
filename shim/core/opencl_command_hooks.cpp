// OpenCL commands: which queue uses which memory, up to which command; and what the program itself waited for.
// A use is noted after the real enqueue returned and before the program learns of it: a buffer can't be released
// legally in between.
#include <span>

#include "shim/core/misuse.hpp"
#include "shim/core/opencl_hooks.hpp"
#include "shim/core/opencl_state.hpp"

namespace cistern::opencl {

void note_event(const cl_event* event) {
  if (!event || !*event) return;
  OpenclState& s = state();
  add(s.counted_created[static_cast<int>(CountedType::event)]);
  s.counted.put(*event, {.type = CountedType::event});
}

namespace {

std::shared_ptr<QueueClock> clock_of(OpenclState& s, cl_command_queue queue) {
  return s.queues.with(queue, [](Queue* record) { return record ? record->clock : nullptr; });
}

// A sub-buffer's or image's use is its parent's use.
void note_use(OpenclState& s, const void* memory, const std::shared_ptr<QueueClock>& clock, std::uint64_t number) {
  while (memory) {
    const void* parent = nullptr;
    SiteId created = 0, released = 0;
    bool after_release = false;
    s.memory.with(memory, [&](Memory* record) {
      if (!record) return;
      parent = record->parent;
      if (record->state == State::pooled) {
        after_release = true;
        created = record->site, released = record->released_site;
      }
      for (Use& use : record->uses)
        if (use.clock == clock) return void(use.number = number);
      record->uses.push_back({clock, number});
    });
    if (after_release) report_use_after_release(memory, created, released);
    memory = parent;
  }
}

// Runs a command through `enqueue` and notes its event and its uses. A blocking command has ended when it returns,
// and on an in-order queue so has everything before it.
template <class Memory, class Enqueue>
cl_int command(cl_command_queue queue, bool blocking, const cl_event* event, std::span<Memory> memory,
               Enqueue enqueue) {
  OpenclState& s = state();
  const bool matters = blocking || !memory.empty();
  const std::shared_ptr<QueueClock> clock = matters ? clock_of(s, queue) : nullptr;
  const std::uint64_t before = clock ? clock->enqueued() : 0;
  const cl_int error = enqueue();
  if (error != kSuccess) return error;
  note_event(event);
  if (!clock) return error;
  if (blocking) {
    if (clock->in_order()) clock->note_completed_up_to(before);
    return error;
  }
  const std::uint64_t number = clock->note_command();
  for (const void* used : memory) note_use(s, used, clock, number);
  return error;
}

// What a kernel's arguments name now; clSetKernelArg is not thread-safe per kernel, so this is what the enqueue sees.
Vector<const void*> kernel_memory(cl_kernel kernel) {
  return state().kernels.with(kernel,
                              [](Kernel* record) { return record ? record->arguments : Vector<const void*>{}; });
}

void note_mapped(cl_mem memory) {
  state().memory.with(memory, [](Memory* record) {
    if (record) record->mapped_once = true;
  });
}

// Mapping commands say their error through `errcode`.
template <class Map>
void* map_command(cl_command_queue queue, cl_mem memory, bool blocking, const cl_event* event, cl_int* errcode,
                  Map map) {
  void* mapped = nullptr;
  cl_int error = kSuccess;
  command(queue, blocking, event, std::span<const cl_mem>(&memory, 1), [&] {
    mapped = map(&error);
    return error;
  });
  if (error == kSuccess) note_mapped(memory);
  if (errcode) *errcode = error;
  return mapped;
}

}  // namespace

namespace hook {

#define OPENCL_ENQUEUE(slot, name, parameters, arguments, blocking, ...)                            \
  cl_int name parameters {                                                                          \
    const std::initializer_list<const void*> used = {__VA_ARGS__};                                  \
    return command(queue, blocking, event, std::span(used), [&] { return next().name arguments; }); \
  }
#include "shim/symbols.def"

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t* global_offset,
                              const size_t* global_size, const size_t* local_size, cl_uint wait_count,
                              const cl_event* wait_list, cl_event* event) {
  const Vector<const void*> used = kernel_memory(kernel);
  return command(queue, false, event, std::span(used), [&] {
    return next().clEnqueueNDRangeKernel(queue, kernel, dimensions, global_offset, global_size, local_size, wait_count,
                                         wait_list, event);
  });
}

cl_int clEnqueueTask(cl_command_queue queue, cl_kernel kernel, cl_uint wait_count, const cl_event* wait_list,
                     cl_event* event) {
  const Vector<const void*> used = kernel_memory(kernel);
  return command(queue, false, event, std::span(used),
                 [&] { return next().clEnqueueTask(queue, kernel, wait_count, wait_list, event); });
}

cl_int clEnqueueNativeKernel(cl_command_queue queue, cl_native_function function, void* arguments,
                             size_t arguments_size, cl_uint memory_count, const cl_mem* memory,
                             const void** memory_locations, cl_uint wait_count, const cl_event* wait_list,
                             cl_event* event) {
  return command(queue, false, event, std::span(memory, memory ? memory_count : 0), [&] {
    return next().clEnqueueNativeKernel(queue, function, arguments, arguments_size, memory_count, memory,
                                        memory_locations, wait_count, wait_list, event);
  });
}

void* clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_uint blocking, cl_bitfield flags, size_t offset,
                         size_t size, cl_uint wait_count, const cl_event* wait_list, cl_event* event, cl_int* errcode) {
  return map_command(queue, buffer, blocking, event, errcode, [&](cl_int* error) {
    return next().clEnqueueMapBuffer(queue, buffer, blocking, flags, offset, size, wait_count, wait_list, event, error);
  });
}

void* clEnqueueMapImage(cl_command_queue queue, cl_mem image, cl_uint blocking, cl_bitfield flags, const size_t* origin,
                        const size_t* region, size_t* row_pitch, size_t* slice_pitch, cl_uint wait_count,
                        const cl_event* wait_list, cl_event* event, cl_int* errcode) {
  return map_command(queue, image, blocking, event, errcode, [&](cl_int* error) {
    return next().clEnqueueMapImage(queue, image, blocking, flags, origin, region, row_pitch, slice_pitch, wait_count,
                                    wait_list, event, error);
  });
}

cl_int clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint memory_count, const cl_mem* memory, cl_bitfield flags,
                                  cl_uint wait_count, const cl_event* wait_list, cl_event* event) {
  return command(queue, false, event, std::span(memory, memory ? memory_count : 0), [&] {
    return next().clEnqueueMigrateMemObjects(queue, memory_count, memory, flags, wait_count, wait_list, event);
  });
}

cl_int clEnqueueAcquireGLObjects(cl_command_queue queue, cl_uint memory_count, const cl_mem* memory, cl_uint wait_count,
                                 const cl_event* wait_list, cl_event* event) {
  return command(queue, false, event, std::span(memory, memory ? memory_count : 0), [&] {
    return next().clEnqueueAcquireGLObjects(queue, memory_count, memory, wait_count, wait_list, event);
  });
}

cl_int clEnqueueReleaseGLObjects(cl_command_queue queue, cl_uint memory_count, const cl_mem* memory, cl_uint wait_count,
                                 const cl_event* wait_list, cl_event* event) {
  return command(queue, false, event, std::span(memory, memory ? memory_count : 0), [&] {
    return next().clEnqueueReleaseGLObjects(queue, memory_count, memory, wait_count, wait_list, event);
  });
}

cl_int clFinish(cl_command_queue queue) {
  const std::shared_ptr<QueueClock> clock = clock_of(state(), queue);
  const std::uint64_t before = clock ? clock->enqueued() : 0;
  const cl_int error = next().clFinish(queue);
  if (clock && error == kSuccess) clock->note_completed_up_to(before);
  return error;
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  const cl_int error = next().clSetKernelArg(kernel, index, size, value);
  if (error != kSuccess) return error;
  // Any 8 bytes may be a memory object; whether they are is looked up when the kernel is enqueued.
  const void* maybe_memory = size == sizeof(cl_mem) && value ? *static_cast<const void* const*>(value) : nullptr;
  state().kernels.with(kernel, [&](Kernel* record) {
    if (!record) return;
    if (record->arguments.size() <= index) record->arguments.resize(index + 1);
    record->arguments[index] = maybe_memory;
  });
  return error;
}

}  // namespace hook
}  // namespace cistern::opencl
